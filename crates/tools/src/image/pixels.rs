//! Decoding and encoding of pictures, within limits.
//!
//! **What can go wrong.** A few bytes may decode to more pixels than the memory holds (a
//! decompression bomb). So the dimensions are read first, and the decoder gets a memory limit.

use std::io::Cursor;

use image::{
    DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits, codecs::jpeg::JpegEncoder,
    imageops, metadata::Orientation,
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Maximum width and height of a produced picture, in pixels.
pub(super) const MAX_SIDE_PIXELS: u32 = 4096;

/// Maximum width and height of a decoded picture, in pixels.
const MAX_DECODED_SIDE_PIXELS: u32 = 16_384;

/// Memory limit of the decoder, in bytes: 40 million pixels.
const MAX_DECODE_BYTES: u64 = 160 << 20;

/// JPEG quality, from 1 to 100.
const JPEG_QUALITY: u8 = 85;

/// A kind of picture that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Format {
    Png,
    #[serde(alias = "jpg")]
    Jpeg,
    Webp,
}

impl Format {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Webp => "image/webp",
        }
    }
}

/// How large a picture is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(super) enum Size {
    #[default]
    #[serde(rename = "1024x1024")]
    Square,
    // The aliases are sizes of dall-e-3, which models know, too.
    #[serde(rename = "1536x1024", alias = "1792x1024")]
    Wide,
    #[serde(rename = "1024x1536", alias = "1024x1792")]
    High,
}

impl Size {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Square => "1024x1024",
            Self::Wide => "1536x1024",
            Self::High => "1024x1536",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PictureProperties {
    pub(super) kind: &'static str,
    pub(super) media_type: &'static str,
    pub(super) width: u32,
    pub(super) height: u32,
}

#[derive(Debug)]
pub(super) struct EncodedPicture {
    pub(super) media_type: &'static str,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) content: Vec<u8>,
}

/// Reads the properties of a picture, without decoding its pixels.
pub(super) fn info(content: &[u8]) -> Result<PictureProperties, String> {
    let reader = reader(content).map_err(unreadable)?;
    let (kind, media_type) = match reader.format() {
        Some(ImageFormat::Png) => ("png", "image/png"),
        Some(ImageFormat::Jpeg) => ("jpeg", "image/jpeg"),
        Some(ImageFormat::WebP) => ("webp", "image/webp"),
        Some(ImageFormat::Gif) => ("gif", "image/gif"),
        _ => return Err("the picture cannot be read: it is no png, jpeg, webp or gif".to_owned()),
    };
    let (width, height) = reader.into_dimensions().map_err(unreadable)?;
    Ok(PictureProperties { kind, media_type, width, height })
}

/// Whether a picture is to be turned or mirrored before it is shown: cameras of phones write how they
/// were held. Models are not shown that note, and copies do not have it.
fn is_turned(content: &[u8]) -> bool {
    let decoder = reader(content).ok().and_then(|reader| reader.into_decoder().ok());
    let orientation = decoder.and_then(|mut decoder| decoder.orientation().ok());
    orientation.is_some_and(|orientation| orientation != Orientation::NoTransforms)
}

fn decode_upright(content: &[u8]) -> image::ImageResult<DynamicImage> {
    let mut decoder = reader(content)?.into_decoder()?;
    // The decoder limits the dimensions, and not always the memory for the pixels.
    decoder_limits().reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut picture = DynamicImage::from_decoder(decoder)?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Shrinks a picture in proportion to fit the dimensions; only the first frame of an animation.
pub(super) fn resize(
    content: &[u8],
    (width, height): (Option<u32>, Option<u32>),
    format: Option<Format>,
) -> Result<EncodedPicture, String> {
    let info = info(content)?;
    let mut picture = decode_upright(content).map_err(unreadable)?;
    let width = width.unwrap_or(MAX_SIDE_PIXELS);
    let height = height.unwrap_or(MAX_SIDE_PIXELS);
    if picture.width() > width || picture.height() > height {
        picture = picture.resize(width, height, imageops::FilterType::Triangle);
    }
    let format = format.unwrap_or(match info.kind {
        "jpeg" => Format::Jpeg,
        "webp" => Format::Webp,
        _ => Format::Png,
    });
    let made = encode(&picture, format).map_err(|error| format!("it cannot be made: {error}"))?;
    Ok(EncodedPicture {
        media_type: format.media_type(),
        width: picture.width(),
        height: picture.height(),
        content: made,
    })
}

/// Longest side of a picture that a model is shown, in pixels. Anthropic refuses more than 8,000, or 2,000
/// beside many pictures (<https://github.com/anthropics/claude-code/issues/4778>,
/// <https://github.com/anthropics/claude-code/issues/14412>); vendors shrink larger ones themselves.
const MAX_SHOWN_SIDE_PIXELS: u32 = 2_000;

/// Limit on a picture that a model is shown, in bytes: in base64 it is Anthropic's 5 MB
/// (<https://docs.anthropic.com/en/docs/build-with-claude/vision>); others accept more.
const MAX_SHOWN_BYTES: usize = 3_750_000;

/// A picture as a model is shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShownPicture {
    /// Every vendor takes it.
    Unchanged,
    /// A copy that is smaller, or turned as the camera noted.
    Copy { media_type: &'static str, content: Vec<u8> },
    /// A picture that is too large for some vendors, and of which no smaller copy can be made.
    Unshowable,
}

/// Makes a picture small enough for all vendors of models, and upright. This takes a while for a large
/// one.
#[must_use]
pub fn picture_for_models(content: &[u8]) -> ShownPicture {
    let is_small = |content: &[u8]| content.len() <= MAX_SHOWN_BYTES;
    match info(content) {
        Ok(info)
            if info.width.max(info.height) <= MAX_SHOWN_SIDE_PIXELS
                && is_small(content)
                && !is_turned(content) =>
        {
            return ShownPicture::Unchanged;
        }
        Ok(_) => {}
        // Other kinds are up to the vendor.
        Err(_) if is_small(content) => return ShownPicture::Unchanged,
        Err(_) => return ShownPicture::Unshowable,
    }
    let (side, half) = (MAX_SHOWN_SIDE_PIXELS, MAX_SHOWN_SIDE_PIXELS / 2);
    [(side, None), (side, Some(Format::Jpeg)), (half, Some(Format::Jpeg))]
        .into_iter()
        .filter_map(|(side, format)| resize(content, (Some(side), Some(side)), format).ok())
        .find(|made| is_small(&made.content))
        .map_or(ShownPicture::Unshowable, |made| ShownPicture::Copy {
            media_type: made.media_type,
            content: made.content,
        })
}

fn encode(picture: &DynamicImage, format: Format) -> image::ImageResult<Vec<u8>> {
    let mut out = Cursor::new(Vec::new());
    match format {
        Format::Png => picture.write_to(&mut out, ImageFormat::Png)?,
        // JPEG has no transparency.
        Format::Jpeg => {
            picture
                .to_rgb8()
                .write_with_encoder(JpegEncoder::new_with_quality(&mut out, JPEG_QUALITY))?;
        }
        Format::Webp => {
            let picture = DynamicImage::ImageRgba8(picture.to_rgba8());
            picture.write_to(&mut out, ImageFormat::WebP)?;
        }
    }
    Ok(out.into_inner())
}

fn reader(content: &[u8]) -> image::ImageResult<ImageReader<Cursor<&[u8]>>> {
    let mut reader = ImageReader::new(Cursor::new(content)).with_guessed_format()?;
    reader.limits(decoder_limits());
    Ok(reader)
}

fn decoder_limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_DECODED_SIDE_PIXELS);
    limits.max_image_height = Some(MAX_DECODED_SIDE_PIXELS);
    limits.max_alloc = Some(MAX_DECODE_BYTES);
    limits
}

fn unreadable(error: image::ImageError) -> String {
    match error {
        image::ImageError::Limits(_) => {
            format!(
                "the picture cannot be read: it is larger than {MAX_DECODED_SIDE_PIXELS} dots on a side, or 40 million in all"
            )
        }
        error => format!("the picture cannot be read: {error}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn png(width: u32, height: u32) -> Vec<u8> {
        encode(&DynamicImage::new_rgb8(width, height), Format::Png).unwrap()
    }

    #[test]
    fn a_picture_is_never_made_larger_or_out_of_proportion() {
        let sizes = |width, height| {
            let made = resize(&png(300, 100), (width, height), None).unwrap();
            (made.width, made.height)
        };

        assert_eq!(sizes(Some(150), None), (150, 50));
        assert_eq!(sizes(Some(150), Some(10)), (30, 10));
        assert_eq!(sizes(Some(4096), None), (300, 100));
    }

    #[test]
    fn each_kind_can_be_made_and_read_again() {
        for (format, media_type) in
            [(Format::Png, "image/png"), (Format::Jpeg, "image/jpeg"), (Format::Webp, "image/webp")]
        {
            let made = resize(&png(30, 10), (Some(15), None), Some(format)).unwrap();
            let read = info(&made.content).unwrap();

            assert_eq!((read.media_type, read.width, read.height), (media_type, 15, 5));
            assert_eq!(made.media_type, media_type);
        }
    }

    #[test]
    fn a_model_is_shown_a_picture_that_no_vendor_refuses() {
        assert_eq!(picture_for_models(&png(2_000, 10)), ShownPicture::Unchanged);
        assert_eq!(picture_for_models(b"GIF89a but no picture"), ShownPicture::Unchanged);
        assert_eq!(picture_for_models(&vec![0; MAX_SHOWN_BYTES + 1]), ShownPicture::Unshowable);
        let ShownPicture::Copy { media_type, content } = picture_for_models(&png(8_000, 100))
        else {
            panic!("it is too wide");
        };
        let made = info(&content).unwrap();
        assert_eq!((media_type, made.width, made.height), ("image/png", 2_000, 25));

        // Noise: it cannot be compressed without loss.
        let mut noise = 1_u32;
        let picture = image::RgbImage::from_fn(1_300, 1_100, |_, _| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            image::Rgb(noise.to_be_bytes()[..3].try_into().unwrap())
        });
        let large = encode(&DynamicImage::ImageRgb8(picture), Format::Png).unwrap();
        assert!(large.len() > MAX_SHOWN_BYTES);
        let ShownPicture::Copy { media_type, content } = picture_for_models(&large) else {
            panic!("it has too many bytes");
        };
        assert_eq!((media_type, content.len() <= MAX_SHOWN_BYTES), ("image/jpeg", true));
    }

    #[test]
    fn a_photo_of_a_phone_is_shown_upright() {
        let path = "../documents/testdata/receipt-rotated-pillow.jpg";
        let photo = std::fs::read(path).unwrap();

        let ShownPicture::Copy { media_type, content } = picture_for_models(&photo) else {
            panic!("its dots lie on their side");
        };
        let resized = resize(&photo, (Some(310), None), None).unwrap();

        let before = info(&photo).unwrap();
        let made = info(&content).unwrap();
        assert_eq!((before.width, before.height), (400, 620));
        assert_eq!((media_type, made.width, made.height), ("image/jpeg", 620, 400));
        assert_eq!((resized.width, resized.height), (310, 200));
        assert_eq!(picture_for_models(&content), ShownPicture::Unchanged);
    }

    #[test]
    fn a_picture_that_would_fill_the_memory_is_not_read() {
        // 12,000 × 12,000 pixels in a few bytes of a header.
        let mut bomb = png(1, 1);
        bomb[16..20].copy_from_slice(&12_000_u32.to_be_bytes());
        bomb[20..24].copy_from_slice(&12_000_u32.to_be_bytes());
        let crc = crc32(&bomb[12..29]);
        bomb[29..33].copy_from_slice(&crc.to_be_bytes());

        assert_eq!(info(&bomb).map(|info| info.width), Ok(12_000));
        let refused = resize(&bomb, (Some(10), None), None).unwrap_err();
        assert!(refused.contains("40 million"), "{refused}");

        let mut wide = png(1, 1);
        wide[16..20].copy_from_slice(&60_000_u32.to_be_bytes());
        let crc = crc32(&wide[12..29]);
        wide[29..33].copy_from_slice(&crc.to_be_bytes());
        assert!(resize(&wide, (Some(10), None), None).is_err());
    }

    fn crc32(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 }
            })
        })
    }
}
