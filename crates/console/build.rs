//! Embeds the built web console and the built documentation: the files of `web/dist` and `book/dist`, if
//! they are there.
//!
//! A build that needs Node would keep people from the binary who do not want these; so `make console`
//! and `make docs` build them, and this script takes what is there. Cargo builds a crate again each time
//! if a watched path does not exist, so the folders are watched only when they do; the two commands touch
//! this file otherwise.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use sha2::{Digest as _, Sha256};

/// Endings of files that are compressed already.
const COMPRESSED_ENDINGS: [&str; 6] = ["woff2", "png", "jpg", "webp", "gif", "ico"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let mut code = embed("CONSOLE", Path::new("../../web/dist"))?;
    code.push_str(&embed("BOOK", Path::new("../../book/dist"))?);
    fs::write(out().join("assets.rs"), code)
}

fn out() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default())
}

/// Returns the code of a static `Folder` with the files of `dist`.
fn embed(name: &str, dist: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    if dist.join("index.html").is_file() {
        println!("cargo:rerun-if-changed={}", dist.display());
        list(dist, &mut files)?;
        files.sort();
    }
    let mut code = format!("static {name}_FILES: &[Asset] = &[\n");
    for (at, file) in files.iter().enumerate() {
        let content = fs::read(file)?;
        let path = file.strip_prefix(dist).map_err(io::Error::other)?.display().to_string();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_gzip = !COMPRESSED_ENDINGS.contains(&ending);
        let stored = out().join(format!("{name}-{at}.asset"));
        fs::write(&stored, if is_gzip { compress(&content)? } else { content.clone() })?;
        let etag: String =
            Sha256::digest(&content)[..16].iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
        writeln!(
            code,
            "Asset {{ path: {path:?}, is_gzip: {is_gzip}, etag: {etag:?}, \
             content: include_bytes!({stored:?}) }},",
        )
        .map_err(io::Error::other)?;
    }
    code.push_str("];\n");
    Ok(code)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}
