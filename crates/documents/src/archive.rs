//! ZIP archives: which document is in them.

use crate::{
    Document, DocumentKind, Error, UnreadableKind, book, open_document, package::Package, sheets,
    slides, word,
};

/// Reads the document that a ZIP archive is.
pub fn read(content: &[u8]) -> Result<Document, Error> {
    let mut package = Package::open(content)?;
    let media_type = package.read("mimetype")?.unwrap_or_default();
    if media_type.starts_with(b"application/epub+zip") || package.has("META-INF/container.xml") {
        return book::read(&mut package);
    }
    if media_type.starts_with(b"application/vnd.oasis.opendocument") {
        return open_document::read(&mut package);
    }
    if !package.has("[Content_Types].xml") {
        let is_iwork = |name: &String| name.ends_with(".iwa") || name == "Index.zip";
        let kind = match package.names().iter().any(is_iwork) {
            true => UnreadableKind::Iwork,
            false => UnreadableKind::Archive,
        };
        return Err(Error::Unreadable(kind));
    }
    let main = main_part(&mut package)?;
    let folder = main.split('/').next().unwrap_or_default();
    match folder {
        "word" => word::read(&mut package, &main),
        "ppt" => slides::read(&mut package, &main),
        "xl" if main.ends_with(".bin") => sheets::read_binary(&mut package, content),
        "xl" => sheets::read(&mut package, content),
        _ => Err(Error::Damaged(DocumentKind::Office)),
    }
}

/// Path of the part that an Office file begins with.
fn main_part(package: &mut Package<'_>) -> Result<String, Error> {
    let relationships = package.relationships("")?;
    let main = relationships.into_values().find(|part| part.kind == "officeDocument");
    if let Some(main) = main.filter(|main| !main.is_external && package.has(&main.target)) {
        return Ok(main.target);
    }
    let usual = ["word/document.xml", "xl/workbook.xml", "xl/workbook.bin", "ppt/presentation.xml"];
    let part = usual.into_iter().find(|part| package.has(part));
    part.map(str::to_owned).ok_or(Error::Damaged(DocumentKind::Office))
}
