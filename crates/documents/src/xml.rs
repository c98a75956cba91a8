//! Walk through an XML file of a document.
//!
//! Nothing is built and nothing is expanded: entities of a DTD stay unknown, external files are never
//! opened, and nesting is counted.

use quick_xml::{Reader, XmlVersion, events::BytesStart, events::Event};

use crate::{DocumentKind, Error, MAX_XML_DEPTH, decode_text};

/// Whether the content of an element is walked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Enter,
    Skip,
}

/// Receiver of the elements and texts of an XML file, in their order.
pub trait Visitor {
    fn start(&mut self, element: &Element<'_>) -> Result<Step, Error>;

    /// Ends an element that was entered.
    fn end(&mut self, name: &str) -> Result<(), Error>;

    fn text(&mut self, text: &str);
}

/// Start of an element.
#[derive(Debug)]
pub struct Element<'a>(&'a BytesStart<'a>);

impl Element<'_> {
    /// Name with its prefix, as in `text:p`.
    pub fn name(&self) -> String {
        self.0.name().as_ref().to_owned()
    }

    /// Value of an attribute, found by its name without a prefix.
    pub fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.0.attributes().flatten();
        let attribute = attributes.find(|one| local(one.key.as_ref()) == name)?;
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(|value| value.into_owned())
    }

    /// Value of an attribute, found by its name with its prefix.
    pub fn prefixed_attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.0.attributes().flatten();
        let attribute = attributes.find(|one| one.key.as_ref() == name)?;
        attribute.normalized_value(XmlVersion::Implicit1_0).ok().map(|value| value.into_owned())
    }
}

/// Name without its prefix.
pub fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Walks through an XML file.
///
/// # Errors
///
/// If it is not well-formed or nested too deeply, or the visitor fails.
pub fn walk(content: &[u8], kind: DocumentKind, visitor: &mut impl Visitor) -> Result<(), Error> {
    let damaged = Error::Damaged(kind);
    let text = decode_text(content, None).ok_or_else(|| damaged.clone())?.text;
    let mut reader = Reader::from_str(&text);
    reader.config_mut().expand_empty_elements = true;
    let mut depth = 0_usize;
    // Depth of the element that is skipped.
    let mut skipped: Option<usize> = None;
    loop {
        match reader.read_event().map_err(|_| damaged.clone())? {
            Event::Start(start) => {
                depth += 1;
                if depth > MAX_XML_DEPTH {
                    return Err(Error::DeepXml);
                }
                if skipped.is_none() && visitor.start(&Element(&start))? == Step::Skip {
                    skipped = Some(depth);
                }
            }
            Event::End(end) => {
                match skipped {
                    Some(from) if from == depth => skipped = None,
                    Some(_) => {}
                    None => visitor.end(end.name().as_ref())?,
                }
                depth = depth.saturating_sub(1);
            }
            Event::Text(text) if skipped.is_none() => visitor.text(&text.xml10_content()),
            Event::CData(text) if skipped.is_none() => visitor.text(&text.xml10_content()),
            Event::GeneralRef(reference) if skipped.is_none() => {
                let character = match reference.resolve_char_ref() {
                    Ok(Some(character)) => Some(character),
                    Ok(None) | Err(_) => predefined(&reference.xml10_content()),
                };
                if let Some(character) = character {
                    visitor.text(character.encode_utf8(&mut [0; 4]));
                }
            }
            Event::Eof if depth == 0 => return Ok(()),
            Event::Eof => return Err(damaged),
            Event::Text(_)
            | Event::CData(_)
            | Event::GeneralRef(_)
            | Event::Empty(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
}

fn predefined(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Texts(String);

    impl Visitor for Texts {
        fn start(&mut self, element: &Element<'_>) -> Result<Step, Error> {
            if let Some(value) = element.attribute("a") {
                self.0.push_str(&value);
            }
            Ok(if element.name() == "x:skip" { Step::Skip } else { Step::Enter })
        }

        fn end(&mut self, name: &str) -> Result<(), Error> {
            self.0.push_str(&format!("/{} ", local(name)));
            Ok(())
        }

        fn text(&mut self, text: &str) {
            self.0.push_str(text);
        }
    }

    fn texts(xml: &str) -> Result<String, Error> {
        let mut texts = Texts::default();
        walk(xml.as_bytes(), DocumentKind::Word, &mut texts).map(|()| texts.0)
    }

    #[test]
    fn elements_and_texts_are_visited_and_skipped_ones_are_not() {
        let xml = "<r><p x:a='1 &lt;'>a &amp; &#x4e2d;<b/></p><x:skip>no<x:skip/></x:skip>\
                   <![CDATA[<c>]]></r>";

        assert_eq!(texts(xml).unwrap(), "1 <a & 中/b /p <c>/r ");
    }

    #[test]
    fn entities_are_not_expanded_and_nesting_is_bounded() {
        let laughs = "<!DOCTYPE r [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>\
                      <!ENTITY f SYSTEM 'file:///etc/passwd'>]><r>x&b;&f;</r>";
        let deep = "<p>".repeat(1_000_000);

        assert_eq!(texts(laughs).unwrap(), "x/r ");
        assert_eq!(texts(&deep), Err(Error::DeepXml));
        for broken in ["<r>", "<r></p>", "<r", "</r>"] {
            assert_eq!(texts(broken), Err(Error::Damaged(DocumentKind::Word)), "{broken}");
        }
    }
}
