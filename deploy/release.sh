#!/bin/sh
# release.sh REPOSITORY VERSION: pushes the chart and signs a release, after `make images` and `make sbom`.
#
# The images and the chart are signed in the registry, and the images have the list of packages as a signed
# attestation. .holdfast/release gets the files of the release: binaries of the image, chart, list of
# packages, and SHA256SUMS with its signature and the signed record of the build (SLSA provenance). Everything
# that is signed is verified at the end, as its users do (docs/install.md).
#
# Needs docker with buildx, helm and cosign 3, a login at the registry, and a workflow of GitHub with `id-token: write`:
# cosign signs with the identity of the workflow, and there is no key.
set -eu
cd "$(dirname "$0")/.."
[ $# = 2 ] || { sed -n '2s/^# //p' "$0" >&2; exit 2; }
repository=$1 version=$2
out=.holdfast/release
source=$GITHUB_SERVER_URL/$GITHUB_REPOSITORY
identity=$GITHUB_SERVER_URL/$GITHUB_WORKFLOW_REF
issuer=https://token.actions.githubusercontent.com
rm -rf "$out"
mkdir -p "$out"

image=$(grep "^$repository@" .holdfast/images)
rm -rf .holdfast/binaries
printf 'FROM scratch\nCOPY --from=%s /usr/local/bin/holdfast /\n' "$image" |
    docker buildx build --platform linux/amd64,linux/arm64 --output type=local,dest=.holdfast/binaries -
for platform in amd64 arm64; do
    cp ".holdfast/binaries/linux_$platform/holdfast" "$out/holdfast-$version-linux-$platform"
done

deploy/pin_images.py chart .holdfast/images
deploy/pin_images.py check --released
helm package helm/holdfast --destination "$out"
charts=${repository%/*}/charts
helm push "$out/holdfast-$version.tgz" "oci://$charts" >.holdfast/push 2>&1 || { cat .holdfast/push >&2; exit 1; }
digest=$(sed -n 's/^Digest: *\(sha256:[0-9a-f]*\)$/\1/p' .holdfast/push)
[ -n "$digest" ] || { echo "error: helm names no digest of the chart" >&2; exit 1; }
chart=$charts/holdfast@$digest

cp .holdfast/holdfast.cdx.json "$out/holdfast-$version.cdx.json"
{ cat .holdfast/images; echo "$chart"; } >"$out/images-$version.txt"
(cd "$out" && sha256sum -- * >SHA256SUMS)
cat >.holdfast/provenance.json <<JSON
{
  "buildDefinition": {
    "buildType": "https://slsa-framework.github.io/github-actions-buildtypes/workflow/v1",
    "externalParameters": {"workflow": {"ref": "$GITHUB_REF", "repository": "$source", "path": ".github/workflows/release.yml"}},
    "resolvedDependencies": [{"uri": "git+$source@$GITHUB_REF", "digest": {"gitCommit": "$GITHUB_SHA"}}]
  },
  "runDetails": {
    "builder": {"id": "$identity"},
    "metadata": {"invocationId": "$source/actions/runs/$GITHUB_RUN_ID/attempts/$GITHUB_RUN_ATTEMPT"}
  }
}
JSON

verified() {
    command=$1
    shift
    cosign "$command" --certificate-identity "$identity" --certificate-oidc-issuer "$issuer" "$@" </dev/null >/dev/null
}

while read -r signed; do
    cosign sign --yes "$signed" </dev/null
    verified verify "$signed"
done <"$out/images-$version.txt"
while read -r signed; do
    cosign attest --yes --type cyclonedx --predicate .holdfast/holdfast.cdx.json "$signed" </dev/null
    verified verify-attestation --type cyclonedx "$signed"
done <.holdfast/images
cosign sign-blob --yes --bundle "$out/SHA256SUMS.sigstore.json" "$out/SHA256SUMS"
verified verify-blob --bundle "$out/SHA256SUMS.sigstore.json" "$out/SHA256SUMS"
cosign attest-blob --yes --type slsaprovenance1 --predicate .holdfast/provenance.json \
    --bundle "$out/SHA256SUMS.provenance.json" "$out/SHA256SUMS"
verified verify-blob-attestation --type slsaprovenance1 --bundle "$out/SHA256SUMS.provenance.json" "$out/SHA256SUMS"
