//! Compressed RTF of Outlook messages (MS-OXRTFCP): a text that refers to its last 4 KiB.

/// Length of the header, in bytes: packed size, size, kind and checksum.
const HEADER_BYTES: usize = 16;

/// Values of the header's kind: the content is compressed, or is the text itself.
const LZFU: &[u8] = b"LZFu";
const MELA: &[u8] = b"MELA";

/// Length of the dictionary, in bytes.
const DICTIONARY_BYTES: usize = 4096;

/// Text that the dictionary begins with.
const INITIAL_DICTIONARY: &[u8] = b"{\\rtf1\\ansi\\mac\\deff0\\deftab720{\\fonttbl;}{\\f0\\fnil \
\\froman \\fswiss \\fmodern \\fscript \\fdecor MS Sans SerifSymbolArialTimes New RomanCourier\
{\\colortbl\\red0\\green0\\blue0\r\n\\par \\pard\\plain\\f0\\fs20\\b\\i\\u\\tab\\tx";

/// Unpacks a text; `None` if it is not compressed RTF. A damaged one is unpacked as far as possible.
///
/// The text is at most about eight times as long as the content: a reference of two bytes stands for
/// at most 17.
pub fn unpack(content: &[u8]) -> Option<Vec<u8>> {
    let (header, packed) = content.split_at_checked(HEADER_BYTES)?;
    match &header[8..12] {
        MELA => return Some(packed.to_vec()),
        LZFU => {}
        _ => return None,
    }
    let mut text = Vec::with_capacity(packed.len());
    let mut dictionary = [0; DICTIONARY_BYTES];
    let mut end = INITIAL_DICTIONARY.len();
    dictionary[..end].copy_from_slice(INITIAL_DICTIONARY);
    let mut packed = packed.iter().copied();
    while let Some(flags) = packed.next() {
        for bit in 0..8 {
            let Some(first) = packed.next() else { return Some(text) };
            if flags >> bit & 1 == 0 {
                text.push(first);
                dictionary[end] = first;
                end = (end + 1) % DICTIONARY_BYTES;
                continue;
            }
            let Some(second) = packed.next() else { return Some(text) };
            let reference = u16::from_be_bytes([first, second]);
            let (from, length) = (usize::from(reference >> 4), usize::from(reference & 15) + 2);
            if from == end {
                return Some(text);
            }
            for place in from..from + length {
                let byte = dictionary[place % DICTIONARY_BYTES];
                text.push(byte);
                dictionary[end] = byte;
                end = (end + 1) % DICTIONARY_BYTES;
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Example of MS-OXRTFCP, section 4.1.
    const EXAMPLE: [u8; 49] = [
        0x2d, 0, 0, 0, 0x2b, 0, 0, 0, 0x4c, 0x5a, 0x46, 0x75, 0xf1, 0xc5, 0xc7, 0xa7, 0x03, 0x00,
        0x0a, 0x00, 0x72, 0x63, 0x70, 0x67, 0x31, 0x32, 0x35, 0x42, 0x32, 0x0a, 0xf3, 0x20, 0x68,
        0x65, 0x6c, 0x09, 0x00, 0x20, 0x62, 0x77, 0x05, 0xb0, 0x6c, 0x64, 0x7d, 0x0a, 0x80, 0x0f,
        0xa0,
    ];

    #[test]
    fn the_example_of_the_specification_is_unpacked() {
        let text = unpack(&EXAMPLE).unwrap();

        assert_eq!(text, b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n");
        assert_eq!(INITIAL_DICTIONARY.len(), 207);
    }

    #[test]
    fn a_text_that_is_not_compressed_is_returned_as_it_is() {
        let content = [&[0; 8][..], b"MELA", &[0; 4], b"{\\rtf1 x}"].concat();

        assert_eq!(unpack(&content).unwrap(), b"{\\rtf1 x}");
        assert_eq!(unpack(b"LZFu"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_unpacked_to_a_bounded_text(
            packed in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let content = [&[0; 8][..], LZFU, &[0; 4], &packed].concat();
            prop_assert!(unpack(&content).unwrap().len() <= 9 * packed.len());
        }
    }
}
