//! PDFs: read by a separate process, so that hostile files cannot harm the service.

use holdfast_grpc::MemoryCallError;
use holdfast_proto::memory::v1 as pb;
use holdfast_types::Kind;

use crate::world::{Person, World, from};

/// Builds a PDF from objects, numbered from 1, and a trailer entry.
fn pdf(objects: &[Vec<u8>], trailer: &str) -> Vec<u8> {
    let mut file = b"%PDF-1.4\n".to_vec();
    let mut places = Vec::new();
    for (object, number) in objects.iter().zip(1..) {
        places.push(file.len());
        file.extend(format!("{number} 0 obj\n").into_bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    let (start, count) = (file.len(), objects.len() + 1);
    file.extend(format!("xref\n0 {count}\n0000000000 65535 f \n").into_bytes());
    for place in places {
        file.extend(format!("{place:010} 00000 n \n").into_bytes());
    }
    let trailer = format!("trailer\n<< /Size {count} /Root 1 0 R {trailer} >>\n");
    file.extend(trailer.into_bytes());
    file.extend(format!("startxref\n{start}\n%%EOF\n").into_bytes());
    file
}

fn stream(dictionary: &str, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut stream = format!("<< /Length {length} {dictionary} >>\nstream\n").into_bytes();
    stream.extend(content);
    stream.extend(b"\nendstream");
    stream
}

/// Catalogue, page tree and font, then each page with its content.
fn book(pages: &[&str], trailer: &str) -> Vec<u8> {
    let kids: Vec<String> = (0..pages.len()).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        format!(
            "<< /Type /Pages /Count {} /Kids [{}] /MediaBox [0 0 612 792] \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            pages.len(),
            kids.join(" ")
        )
        .into_bytes(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_vec(),
    ];
    for (page, drawn) in pages.iter().enumerate() {
        let contents = 5 + 2 * page;
        let page = format!("<< /Type /Page /Parent 2 0 R /Contents {contents} 0 R >>");
        objects.push(page.into_bytes());
        objects.push(stream("", drawn.as_bytes()));
    }
    pdf(&objects, trailer)
}

/// Lines of text, one under the other.
fn lines(lines: &[&str]) -> String {
    let shown: Vec<String> = lines.iter().map(|line| format!("({line}) Tj 0 -20 Td")).collect();
    format!("BT /F1 12 Tf 72 700 Td {} ET", shown.join(" "))
}

/// Compressed zlib stream: 258 spaces for each 13 bits.
fn spaces(runs: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = vec![true, true, false];
    // Huffman codes begin with their highest bit: one space, then matches of length 258, distance
    // 1.
    let code = |value: u32, width: u32| (0..width).rev().map(move |bit| (value >> bit) & 1 == 1);
    bits.extend(code(0x30 + 32, 8));
    for _ in 0..runs {
        bits.extend(code(0b1100_0101, 8).chain(code(0, 5)));
    }
    bits.extend(code(0, 7));
    let bytes = bits.chunks(8).map(|eight| {
        eight.iter().zip(0..).fold(0_u8, |byte, (bit, place)| byte | (u8::from(*bit) << place))
    });
    // The checksum is wrong, but readers check it only at the end.
    [0x78, 0x9c].into_iter().chain(bytes).chain([0; 4]).collect()
}

async fn ingest(person: &Person, content: Vec<u8>) -> Result<pb::Article, MemoryCallError> {
    let request = pb::IngestRequest {
        who: person.me(),
        scope: pb::Scope::Tenant.into(),
        content,
        provenance: from(),
        ..pb::IngestRequest::default()
    };
    person.memory.kb_ingest(person.tenant, request).await
}

#[tokio::test]
async fn a_pdf_is_read_page_by_page_and_found_with_the_page_it_stands_on() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let pages = [
        lines(&["How to use your kettle", "Fill it with water."]),
        lines(&["Descale it with vinegar", "once a month."]),
    ];
    let trailer = "/Info << /Title (The kettle) >>";

    let made = ingest(&ann, book(&[&pages[0], &pages[1]], trailer)).await?;
    let filter = pb::Filter { kinds: vec![pb::Kind::Knowledge.into()], ..pb::Filter::default() };
    let found = ann.search_in("descale vinegar", filter).await?;

    assert_eq!(made.title, "The kettle");
    let text = "## Page 1\n\nHow to use your kettle\n\nFill it with water.\n\n\
                ## Page 2\n\nDescale it with vinegar\n\nonce a month.";
    assert_eq!(made.text.replace("\n\n", "\n"), text.replace("\n\n", "\n"));
    assert!(found.hits[0].text.contains("vinegar"), "{:?}", found.hits);
    assert_eq!(found.hits[0].headings, ["The kettle", "Page 2"]);
    Ok(())
}

#[tokio::test]
async fn an_article_is_changed_by_a_pdf_and_keeps_its_title() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let ann = Person { who: pb::Who { maintainer: true, ..ann.who.clone() }, ..ann };
    let made = ingest(&ann, b"# Tea\n\nGreen.".to_vec()).await?;

    let request = pb::UpdateRequest {
        who: ann.me(),
        id: made.id,
        content: book(&[&lines(&["Black tea."])], ""),
        media_type: "application/pdf".into(),
        provenance: from(),
        ..pb::UpdateRequest::default()
    };
    let changed = ann.memory.kb_update(ann.tenant, request).await?;

    assert_eq!((changed.title.as_str(), changed.version), ("Tea", 2));
    assert_eq!(changed.text, "## Page 1\n\nBlack tea.");
    Ok(())
}

#[tokio::test]
async fn a_page_that_cannot_be_read_costs_no_other() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let file = book(&[&lines(&["First."]), &lines(&["Second."])], "");
    // The library gives up on a page without a size.
    let broken = String::from_utf8(file)?.replacen("/Parent 2 0 R", "/MediaBox [] ", 1);

    let made = ingest(&ann, broken.into_bytes()).await?;

    assert_eq!(made.text, "## Page 1\n\n(this page cannot be read)\n\n## Page 2\n\nSecond.");
    Ok(())
}

#[tokio::test]
async fn what_has_no_text_to_be_read_is_refused_with_what_to_do() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    let nothing = "00".repeat(32);
    let handler = format!("<< /Filter /Standard /V 1 /R 2 /O <{nothing}> /U <{nothing}> /P -4 >>");
    let locked = format!("/Encrypt {handler} /ID [<00> <00>]");
    // Common form: the handler is an object of its own.
    let mut objects = vec![
        b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
        b"<< /Type /Pages /Count 1 /Kids [3 0 R] /MediaBox [0 0 612 792] >>".to_vec(),
        b"<< /Type /Page /Parent 2 0 R >>".to_vec(),
    ];
    objects.push(handler.into_bytes());
    let locked_apart = pdf(&objects, "/Encrypt 4 0 R /ID [<00> <00>]");
    let drawing = "0 0 m 100 100 l S";
    let whole = book(&[&lines(&["First."])], "");
    let cut = whole[..40].to_vec();
    for (file, told) in [
        (book(&[&lines(&["Secret."])], &locked), "a PDF with a password"),
        (locked_apart, "a PDF with a password"),
        (book(&[drawing, drawing], ""), "recognised (OCR)"),
        (cut, "print it to a new PDF"),
        (b"%PDF-1.4 broken".to_vec(), "print it to a new PDF"),
        (book(&vec![drawing; 2001], ""), "has 2001 pages, and 2000 are the most"),
    ] {
        let refused = ingest(&ann, file).await.unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid, "{refused}");
        assert!(refused.message.contains(told), "`{told}` is not in `{refused}`");
    }
    Ok(())
}

#[tokio::test]
async fn a_bomb_ends_its_reader_and_nothing_else() -> anyhow::Result<()> {
    let (_world, served) = World::start().await?;
    let ann = served.somebody();
    // 100 kB that decompress to 16 MB, used two hundred times on one page.
    let packed = spaces(62_000);
    let contents = "5 0 R ".repeat(200);
    let bomb = pdf(
        &[
            b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
            b"<< /Type /Pages /Count 1 /Kids [3 0 R] /MediaBox [0 0 612 792] >>".to_vec(),
            format!("<< /Type /Page /Parent 2 0 R /Contents [{contents}] >>").into_bytes(),
            b"null".to_vec(),
            stream("/Filter /FlateDecode", &packed),
        ],
        "",
    );
    // The pages are each other's parents, and the library follows them without end.
    let endless = pdf(
        &[
            b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
            b"<< /Type /Pages /Count 1 /Kids [3 0 R] /Parent 2 0 R >>".to_vec(),
            b"<< /Type /Page /Parent 2 0 R >>".to_vec(),
        ],
        "",
    );

    // One after the other: a tenant reads one file at a time where others wait.
    let (bomb, endless) = (ingest(&ann, bomb).await, ingest(&ann, endless).await);

    for refused in [bomb.unwrap_err(), endless.unwrap_err()] {
        assert_eq!(refused.kind, Kind::Invalid, "{refused}");
        assert!(refused.message.contains("too much time or memory"), "{refused}");
    }
    let made = ingest(&ann, book(&[&lines(&["Still here."])], "")).await?;
    assert_eq!(made.text, "## Page 1\n\nStill here.");
    Ok(())
}
