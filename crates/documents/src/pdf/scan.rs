//! Images of scanned pages: JPEG files that stand in a PDF as they are.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use pdf_extract::{Document as Pdf, Object, ObjectId, Stream};
use serde::{Deserialize, Serialize};

use super::load;
use crate::Error;

/// Maximum number of pages whose images are returned.
const MAX_PAGE_IMAGES: usize = 5;

/// Number of pages among which they are looked for: some are empty.
const MAX_SEARCHED_PAGES: usize = 20;

/// Limit on an image, and on all together, in bytes. In base64 they are smaller than the longest
/// answer of a child.
const MAX_IMAGE_BYTES: usize = 8 * 1024 * 1024;
const MAX_IMAGES_BYTES: usize = 16 * 1024 * 1024;

/// Maximum number of images of a page among which the largest is looked for.
const MAX_IMAGES_PER_PAGE: usize = 64;

/// Image of a scanned page, as JPEG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageImage {
    /// Number of the page, from 1.
    pub number: u32,
    /// Number of pages of the document.
    pub pages: usize,
    base64: String,
}

impl PageImage {
    /// Content of the JPEG file.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        STANDARD.decode(&self.base64).unwrap_or_default()
    }
}

/// Returns the images of the first pages that are images.
pub fn scanned_pages(content: &[u8]) -> Result<Vec<PageImage>, Error> {
    let document = load(content)?;
    let pages = document.get_pages();
    let mut left = MAX_IMAGES_BYTES;
    let mut images = Vec::new();
    for (number, id) in pages.iter().take(MAX_SEARCHED_PAGES) {
        if images.len() == MAX_PAGE_IMAGES {
            break;
        }
        let Some(image) = page_image(&document, *id) else { continue };
        let Some(rest) = left.checked_sub(image.len()) else { break };
        left = rest;
        let base64 = STANDARD.encode(image);
        images.push(PageImage { number: *number, pages: pages.len(), base64 });
    }
    if images.is_empty() { Err(Error::ScannedPdf) } else { Ok(images) }
}

/// Largest JPEG image that a page draws.
fn page_image(document: &Pdf, page: ObjectId) -> Option<&[u8]> {
    let (own, inherited) = document.get_page_resources(page).ok()?;
    let inherited = inherited.iter().filter_map(|id| document.get_dictionary(*id).ok());
    let images = own.into_iter().chain(inherited).filter_map(|resources| {
        let (_, objects) = document.dereference(resources.get(b"XObject").ok()?).ok()?;
        objects.as_dict().ok()
    });
    // Pages may share their resources: one that is not drawn belongs to another page.
    let drawn = document.get_and_decode_page_content(page).ok()?.operations;
    let drawn = drawn.iter().filter(|operation| operation.operator == "Do");
    let drawn: Vec<&[u8]> = drawn
        .filter_map(|operation| operation.operands.first()?.as_name().ok())
        .take(MAX_IMAGES_PER_PAGE)
        .collect();
    let images = images.flat_map(|objects| objects.iter());
    let images = images.filter(|(name, _)| drawn.contains(&name.as_slice()));
    let images = images.filter_map(|(_, object)| jpeg(document, object));
    images.max_by_key(|(dots, _)| *dots).map(|(_, content)| content)
}

/// Size in dots and content of an image that is a JPEG file.
fn jpeg<'a>(document: &'a Pdf, object: &'a Object) -> Option<(i64, &'a [u8])> {
    let (_, object) = document.dereference(object).ok()?;
    let Stream { dict, content, .. } = object.as_stream().ok()?;
    let side = |name: &[u8]| {
        let (_, side) = document.dereference(dict.get(name).ok()?).ok()?;
        side.as_i64().ok()
    };
    let is_jpeg = content.starts_with(b"\xff\xd8\xff") && content.len() <= MAX_IMAGE_BYTES;
    let dots = side(b"Width")?.saturating_mul(side(b"Height")?);
    is_jpeg.then_some((dots, content.as_slice()))
}
