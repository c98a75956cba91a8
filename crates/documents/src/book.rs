//! EPUB books: their chapters in reading order.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;

use crate::{
    Document, DocumentKind, Error, decode_text, html,
    package::{Package, element_text, resolve},
    writer::TextWriter,
    xml::{self, Element, Step, Visitor, local},
};

const KIND: DocumentKind = DocumentKind::Book;

pub fn read(package: &mut Package<'_>) -> Result<Document, Error> {
    package.kind = KIND;
    let container = package.require("META-INF/container.xml")?;
    let mut root = RootFile(None);
    xml::walk(&container, KIND, &mut root)?;
    let root = root.0.ok_or(Error::Damaged(KIND))?;
    let content = package.require(&root)?;
    let title = element_text(&content, KIND, "dc:title")?;
    let mut listing = PackageListing::default();
    xml::walk(&content, KIND, &mut listing)?;
    let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut writer = TextWriter::default();
    for id in &listing.order {
        let Some(target) = listing.files.get(id) else { continue };
        let path = resolve(folder, &percent_decode_str(target).decode_utf8_lossy());
        let Some(chapter) = package.read(&path)? else { continue };
        // Chapters of a protected book are encrypted.
        let Some(chapter) = decode_text(&chapter, None) else { return Err(Error::Locked(KIND)) };
        let chapter = without_self_closed(chapter.text);
        writer.paragraph(&html::document(&chapter).text)?;
    }
    Ok(Document { kind: KIND, title, text: writer.finish() })
}

/// Chapter without elements such as `<script/>`: in HTML, which has no such form, they would take the
/// rest of the chapter for their content.
fn without_self_closed(mut chapter: String) -> String {
    for name in ["<script", "<title", "<style", "<iframe", "<noscript", "<textarea"] {
        let mut from = 0;
        while let Some(start) = chapter[from..].find(name).map(|at| from + at) {
            let Some(end) = chapter[start..].find('>').map(|at| start + at) else { break };
            if chapter[..end].ends_with('/') {
                chapter.replace_range(start..=end, "");
                from = start;
            } else {
                from = end;
            }
        }
    }
    chapter
}

/// Path of the file that lists the book's files.
struct RootFile(Option<String>);

impl Visitor for RootFile {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        if local(&element.name()) == "rootfile" && self.0.is_none() {
            self.0 = element.attribute("full-path");
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn text(&mut self, _: &str) {}
}

/// Files of a book by their ids, and the ids of its chapters in reading order.
#[derive(Default)]
struct PackageListing {
    files: HashMap<String, String>,
    order: Vec<String>,
}

impl Visitor for PackageListing {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        match local(&element.name()) {
            "item" => {
                if let (Some(id), Some(path)) = (element.attribute("id"), element.attribute("href"))
                {
                    self.files.insert(id, path);
                }
            }
            "itemref" => self.order.extend(element.attribute("idref")),
            _ => {}
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn text(&mut self, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_that_closes_itself_hides_nothing() {
        let chapter = "<head><title/><script src='a.js' /><style>p{}</style></head><p>Tea</p>";

        let chapter = without_self_closed(chapter.to_owned());

        assert_eq!(chapter, "<head><style>p{}</style></head><p>Tea</p>");
    }
}
