//! Files of the console's page and of the documentation.

use std::{
    borrow::Cow,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Redirect, Response},
    routing::get,
};
use holdfast_console::{Asset, Folder};
use http::{
    HeaderMap, HeaderValue, StatusCode, Uri,
    header::{
        ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
    },
};
use sha2::{Digest as _, Sha256};
use tracing::error;

/// Path of the console's page.
pub const ROOT: &str = "/console/";

const PAGE: &str = "index.html";

/// Folder of files whose name has the hash of their content.
const HASHED_FOLDER: &str = "assets/";

/// A folder of files, served below a path.
#[derive(Debug)]
struct Files {
    root: &'static str,
    embedded: &'static Folder,
    /// Directory that is served instead of the embedded files.
    dir: Option<PathBuf>,
    /// File for a path that names none.
    page: fn(&str) -> String,
    /// Page for a binary in which nothing is embedded.
    absent: &'static str,
}

/// The console: its page knows the paths that name no file.
pub fn console<S: Clone + Send + Sync + 'static>(dir: Option<PathBuf>) -> Router<S> {
    let page = |_: &str| PAGE.to_owned();
    let embedded = &holdfast_console::CONSOLE;
    router(Files { root: ROOT, embedded, dir, page, absent: holdfast_console::ABSENT_CONSOLE })
}

/// The documentation: a page may be named without its ending.
pub fn docs<S: Clone + Send + Sync + 'static>(dir: Option<PathBuf>) -> Router<S> {
    let page = |path: &str| match path.is_empty() || path.ends_with('/') {
        true => format!("{path}{PAGE}"),
        false => format!("{path}.html"),
    };
    let embedded = &holdfast_console::BOOK;
    router(Files { root: "/docs/", embedded, dir, page, absent: holdfast_console::ABSENT_BOOK })
}

fn router<S: Clone + Send + Sync + 'static>(files: Files) -> Router<S> {
    let root = files.root;
    let files = Arc::new(files);
    let serve = move |uri: Uri, headers: HeaderMap| serve(Arc::clone(&files), uri, headers);
    Router::new()
        .route(root.trim_end_matches('/'), get(async move || Redirect::permanent(root)))
        .route(root, get(serve.clone()))
        .route(&format!("{root}{{*path}}"), get(serve))
}

/// A file, as it is sent.
struct File {
    etag: String,
    content: Cow<'static, [u8]>,
    is_gzip: bool,
}

async fn serve(files: Arc<Files>, uri: Uri, headers: HeaderMap) -> Response {
    let path = uri.path().strip_prefix(files.root).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let path = if name.contains('.') { path.to_owned() } else { (files.page)(path) };
    let file = match &files.dir {
        Some(dir) => from_dir(dir, &path).await,
        None => embedded(files.embedded, &path, accepts_gzip(&headers)),
    };
    match file {
        Some(file) => answer(file, &path, &headers),
        None if path == PAGE => {
            let html = HeaderValue::from_static("text/html; charset=utf-8");
            ([(CONTENT_TYPE, html)], files.absent).into_response()
        }
        None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
    }
}

fn embedded(folder: &Folder, path: &str, accepts_gzip: bool) -> Option<File> {
    let asset: &Asset = folder.find(path)?;
    if let Some(content) = asset.gzip().filter(|_| accepts_gzip) {
        return Some(File { etag: asset.etag.to_owned(), content: content.into(), is_gzip: true });
    }
    match asset.plain() {
        Ok(content) => Some(File { etag: asset.etag.to_owned(), content, is_gzip: false }),
        Err(why) => {
            error!(error = %why, path, "an embedded file cannot be decompressed");
            None
        }
    }
}

/// Reads a file of the directory of the settings, and of no other.
async fn from_dir(dir: &Path, path: &str) -> Option<File> {
    let relative = Path::new(path);
    let is_inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_inside || path.contains(['\\', '\0', '%']) {
        return None;
    }
    let (dir, file) = (dir.to_owned(), dir.join(relative));
    // A link may lead out of the directory.
    let (dir, file) = (tokio::fs::canonicalize(dir).await, tokio::fs::canonicalize(file).await);
    let (dir, file) = (dir.ok()?, file.ok()?);
    if !file.starts_with(dir) {
        return None;
    }
    let content = tokio::fs::read(file).await.ok()?;
    let etag = Sha256::digest(&content)[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Some(File { etag, content: content.into(), is_gzip: false })
}

fn answer(file: File, path: &str, headers: &HeaderMap) -> Response {
    // The compressed form is another representation.
    let etag = format!("\"{}{}\"", file.etag, if file.is_gzip { "-gz" } else { "" });
    let is_known = headers.get(IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = is_known.is_some_and(|known| known.split(',').any(|one| one.trim() == etag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::from(file.content.into_owned()))
    };
    let answered = response.headers_mut();
    let mut set = |name, value: &str| {
        answered.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    };
    let caching = match path.starts_with(HASHED_FOLDER) {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    set(CACHE_CONTROL, caching);
    set(ETAG, &etag);
    set(VARY, "accept-encoding");
    if !is_known {
        set(CONTENT_TYPE, content_type(path));
        if file.is_gzip {
            set(CONTENT_ENCODING, "gzip");
        }
    }
    response
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.unwrap_or_default().split(',').any(|one| {
        let (coding, quality) = one.split_once(';').unwrap_or((one, ""));
        let is_refused = quality
            .trim()
            .strip_prefix("q=")
            .is_some_and(|q| q.trim().parse::<f32>().is_ok_and(|quality| quality <= 0.0));
        coding.trim().eq_ignore_ascii_case("gzip") && !is_refused
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" => "image/jpeg",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_to_who_accepts_it() {
        let accepts = |value: &'static str| {
            accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]))
        };

        assert!(accepts("br, gzip") && accepts("gzip;q=0.5"));
        assert!(!accepts("gzip;q=0") && !accepts("identity") && !accepts_gzip(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn nothing_outside_of_the_directory_is_read() {
        let whole = tempfile::tempdir().unwrap();
        let dir = whole.path().join("dist");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(whole.path().join("secret.txt"), "secret").unwrap();
        std::fs::write(dir.join("own.txt"), "own").unwrap();
        std::os::unix::fs::symlink(whole.path().join("secret.txt"), dir.join("link.txt")).unwrap();

        assert_eq!(from_dir(&dir, "own.txt").await.unwrap().content.as_ref(), b"own");
        for path in ["../secret.txt", "x/../../secret.txt", "link.txt", "/etc/hosts.conf", ""] {
            assert!(from_dir(&dir, path).await.is_none(), "{path}");
        }
    }
}
