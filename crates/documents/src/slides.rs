//! PowerPoint presentations (.pptx): slides with their titles, texts, tables and notes.

use std::collections::HashMap;

use crate::{
    Document, DocumentKind, Error,
    package::{Package, Relationship},
    word::link_text,
    writer::{TextWriter, one_line},
    xml::{self, Element, Step, Visitor, local},
};

pub fn read(package: &mut Package<'_>, main: &str) -> Result<Document, Error> {
    package.kind = DocumentKind::Presentation;
    let order = SlideOrder::of(&package.require(main)?)?;
    let parts = package.relationships(main)?;
    let mut writer = TextWriter::default();
    let slides = order.iter().filter_map(|id| parts.get(id));
    for (slide, number) in slides.zip(1..) {
        let Some(content) = package.read(&slide.target)? else { continue };
        let links = package.relationships(&slide.target)?;
        let mut reader = SlideReader::new(&links);
        xml::walk(&content, DocumentKind::Presentation, &mut reader)?;
        reader.write(number, &mut writer)?;
        let notes = links.values().find(|link| link.kind == "notesSlide" && !link.is_external);
        let Some(notes) = notes else { continue };
        let Some(content) = package.read(&notes.target)? else { continue };
        let links = package.relationships(&notes.target)?;
        let mut reader = SlideReader::new(&links);
        xml::walk(&content, DocumentKind::Presentation, &mut reader)?;
        reader.write_notes(&mut writer)?;
    }
    let title = package.title("docProps/core.xml")?;
    Ok(Document { kind: DocumentKind::Presentation, title, text: writer.finish() })
}

/// Ids of the slides' relationships, in the order of the presentation.
#[derive(Default)]
struct SlideOrder(Vec<String>);

impl SlideOrder {
    fn of(presentation: &[u8]) -> Result<Vec<String>, Error> {
        let mut order = Self::default();
        xml::walk(presentation, DocumentKind::Presentation, &mut order)?;
        Ok(order.0)
    }
}

impl Visitor for SlideOrder {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        if local(&element.name()) == "sldId" {
            // The attribute `id` without a prefix is a number.
            self.0.extend(element.prefixed_attribute("r:id"));
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn text(&mut self, _: &str) {}
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Title,
    /// Slide number, date or footer.
    Furniture,
    Content,
}

enum Line {
    Text(String),
    Row(Vec<String>),
}

struct SlideReader<'a> {
    links: &'a HashMap<String, Relationship>,
    title: String,
    lines: Vec<Line>,
    shape: Shape,
    paragraph: String,
    row: Vec<String>,
    /// Text of the open cell of a table.
    cell: Option<String>,
    /// Where the text of the current run begins, and the address that it links to.
    run: (usize, Option<String>),
    is_text: bool,
}

impl<'a> SlideReader<'a> {
    fn new(links: &'a HashMap<String, Relationship>) -> Self {
        Self {
            links,
            title: String::new(),
            lines: Vec::new(),
            shape: Shape::Content,
            paragraph: String::new(),
            row: Vec::new(),
            cell: None,
            run: (0, None),
            is_text: false,
        }
    }

    fn write(self, number: u32, writer: &mut TextWriter) -> Result<(), Error> {
        let title = one_line(&self.title);
        let separator = if title.is_empty() { "" } else { ": " };
        writer.heading(2, &format!("Slide {number}{separator}{title}"))?;
        for line in self.lines {
            match line {
                Line::Text(text) => writer.paragraph(&text)?,
                Line::Row(row) => writer.row(&row)?,
            }
        }
        Ok(())
    }

    fn write_notes(self, writer: &mut TextWriter) -> Result<(), Error> {
        for line in self.lines {
            if let Line::Text(text) = line {
                writer.paragraph(&format!("Notes: {text}"))?;
            }
        }
        Ok(())
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.paragraph);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        if let Some(cell) = &mut self.cell {
            let gap = if cell.is_empty() { "" } else { " " };
            cell.push_str(gap);
            cell.push_str(text);
            return;
        }
        match self.shape {
            Shape::Title => {
                self.title.push(' ');
                self.title.push_str(text);
            }
            Shape::Furniture => {}
            Shape::Content => self.lines.push(Line::Text(text.to_owned())),
        }
    }
}

impl Visitor for SlideReader<'_> {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
        match local(&element.name()) {
            "sp" => self.shape = Shape::Content,
            "ph" => {
                self.shape = match element.attribute("type").as_deref() {
                    Some("title" | "ctrTitle") => Shape::Title,
                    Some("sldNum" | "dt" | "ftr" | "hdr") => Shape::Furniture,
                    Some(_) | None => Shape::Content,
                };
            }
            "cNvPr" => {
                let description = element.attribute("descr").unwrap_or_default();
                if !description.trim().is_empty() {
                    let text = format!("[image: {}]", one_line(&description));
                    self.lines.push(Line::Text(text));
                }
            }
            "r" => self.run = (self.paragraph.len(), None),
            "hlinkClick" => {
                let link = element.attribute("id").and_then(|id| self.links.get(&id));
                let address = link.filter(|link| link.is_external);
                self.run.1 = address.map(|link| link.target.clone());
            }
            "t" => self.is_text = true,
            "br" => self.paragraph.push('\n'),
            "tc" => self.cell = Some(String::new()),
            "Fallback" => return Ok(Step::Skip),
            _ => {}
        }
        Ok(Step::Enter)
    }

    fn end(&mut self, name: &str) -> Result<(), Error> {
        match local(name) {
            "t" => self.is_text = false,
            "r" => {
                if let (from, Some(address)) = std::mem::take(&mut self.run) {
                    link_text(&mut self.paragraph, from, &address);
                }
            }
            "p" => self.end_paragraph(),
            "sp" => self.shape = Shape::Content,
            "tc" => self.row.extend(self.cell.take()),
            "tr" => self.lines.push(Line::Row(std::mem::take(&mut self.row))),
            _ => {}
        }
        Ok(())
    }

    fn text(&mut self, text: &str) {
        if self.is_text {
            self.paragraph.push_str(text);
        }
    }
}
