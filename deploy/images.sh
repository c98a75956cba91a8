#!/bin/sh
# images.sh REPOSITORY TAG: builds and pushes REPOSITORY:TAG and REPOSITORY-services:TAG for
# amd64 and arm64, each with a list of its packages (SBOM) and a record of its build (provenance), both
# attached to the image. PLATFORMS names others, and BUILDER_ID the builder in the record. Bases are pinned:
# by the digests in the Dockerfile, else by those of the registry, which are printed.
#
# The names of both with their digests are printed at the end, and are in .holdfast/images.
#
# Needs docker with buildx, a builder that attests (driver docker-container), and a login at the registry.
set -eu
cd "$(dirname "$0")/.."
[ $# = 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
repository=$1 tag=$2

if ! docker buildx version >/dev/null 2>&1; then
    echo "error: images are built by docker with buildx, which is not here: install it, and make a builder by \`docker buildx create --use\`" >&2
    exit 1
fi

# pinned ARGUMENT: the base that this argument of the Dockerfile names, with its digest.
pinned() {
    image=$(sed -n "s/^ARG $1=//p" deploy/Dockerfile)
    case $image in *@sha256:*) echo "$image"; return ;; esac
    digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
    case $digest in
        sha256:*) echo "$image@$digest" ;;
        *) echo "error: the registry names no digest of $image: $digest" >&2; exit 1 ;;
    esac
}
rust=$(pinned RUST)
debian=$(pinned DEBIAN)
node=$(pinned NODE)
echo "built from $rust, $debian and $node"

mkdir -p .holdfast
: >.holdfast/images
for target in services holdfast; do
    name=$repository
    [ $target = holdfast ] || name=$repository-$target
    docker buildx build --file deploy/Dockerfile --target $target --push --tag "$name:$tag" \
        --platform "${PLATFORMS:-linux/amd64,linux/arm64}" \
        --build-arg "RUST=$rust" --build-arg "DEBIAN=$debian" --build-arg "NODE=$node" \
        --metadata-file .holdfast/build.json \
        --sbom=true --provenance="mode=max${BUILDER_ID:+,builder-id=$BUILDER_ID}" .
    # Of this build: somebody may move the tag meanwhile.
    digest=$(sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' .holdfast/build.json)
    [ -n "$digest" ] || { echo "error: the build of $name has no digest" >&2; exit 1; }
    echo "$name@$digest" >>.holdfast/images
done
cat .holdfast/images
