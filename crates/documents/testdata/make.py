"""Makes the files of this folder that the table of README.md marks as made by `make.py`.

    python3 make.py          # all
    python3 make.py msg rtf  # files whose names contain one of these

Needs LibreOffice (writer, calc, impress; Debian: `python3-uno` too, whose interpreter runs the part that
saves with a password), pandoc, qpdf, mpack, iconv, a font with Chinese, and the Python packages python-docx,
openpyxl, xlsxwriter, python-pptx, ebooklib, Pillow, pillow-heif, msoffcrypto-tool, extract-msg and
compressed-rtf. Tests need none of them: they read the files.
"""

import datetime
import io
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from email import policy
from email.message import EmailMessage
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = Path(tempfile.mkdtemp())
MAKERS = {}

PAGE = """<!DOCTYPE html><html lang="de"><head><meta charset="utf-8"><title>Rückgabe</title></head><body>
<h1>Rückgabe und Umtausch</h1>
<p>Ware kann innerhalb von <b>dreißig Tagen</b> zurückgegeben werden. Siehe
<a href="https://example.org/agb">die Bedingungen</a>.</p>
<ul><li>Geöffnete Software</li><li>Lebensmittel</li></ul>
<h2>Возврат</h2><p>Товар можно вернуть в течение тридцати дней.</p>
<h2>退货</h2><p>商品可在三十天内退货。</p>
<table border="1"><tr><td>Land</td><td>Porto</td></tr><tr><td>Österreich</td><td>7,50 €</td></tr></table>
</body></html>
"""

MARKDOWN = """---
title: The kettle
---

# How to use the kettle

Fill it with water, then press *start*. See [the manual](https://example.org/kettle).

- Never boil milk.
- Descale it once a month.[^1]

## Parts

| Part | Price |
|------|-------|
| Lid  | 4.90  |
| Base | 12.00 |

[^1]: Vinegar is enough.
"""


def makes(*names):
    def register(maker):
        for name in names:
            MAKERS[name] = maker
        return maker

    return register


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, **options)


def office(source: Path, target: str, filter_name: str = "") -> Path:
    """Has LibreOffice convert a file; returns the new one."""
    kind = target + (":" + filter_name if filter_name else "")
    profile = "-env:UserInstallation=file://" + str(WORK / "profile")
    run("soffice", profile, "--headless", "--convert-to", kind, "--outdir", WORK / "out", source)
    return WORK / "out" / (source.stem + "." + target.split(":")[0])


def source(name: str, content) -> Path:
    path = WORK / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def keep(path: Path, name: str):
    shutil.copyfile(path, HERE / name)


# Documents of LibreOffice Writer.


def writer_document() -> Path:
    return office(source("return.html", PAGE), "odt", "writer8")


@makes("return-libreoffice.odt", "return-libreoffice.docx", "return-libreoffice.doc")
@makes("return-libreoffice.rtf", "return-libreoffice.pdf", "return-libreoffice.epub", "return-libreoffice.html")
def writer_formats(name):
    document = writer_document()
    filters = {
        "docx": "MS Word 2007 XML",
        "doc": "MS Word 97",
        "rtf": "Rich Text Format",
        "pdf": "writer_pdf_Export",
        "epub": "EPUB",
        "html": "HTML (StarWriter)",
    }
    kind = name.rsplit(".", 1)[1]
    keep(document if kind == "odt" else office(document, kind, filters[kind]), name)


@makes("locked-libreoffice.odt")
def locked_by_libreoffice(name):
    document = writer_document()
    script = """
import subprocess, sys, time, uno
from com.sun.star.beans import PropertyValue
source, target, kind, profile = sys.argv[1:]
pipe = "pipe,name=makefixtures;urp;StarOffice.ComponentContext"
listen = "--accept=pipe,name=makefixtures;urp;"
office = subprocess.Popen(["soffice", profile, "--headless", "--norestore", listen])
local = uno.getComponentContext()
resolver = local.ServiceManager.createInstanceWithContext("com.sun.star.bridge.UnoUrlResolver", local)
for _ in range(60):
    try:
        context = resolver.resolve("uno:" + pipe)
        break
    except Exception:
        time.sleep(0.5)
desktop = context.ServiceManager.createInstanceWithContext("com.sun.star.frame.Desktop", context)
value = lambda name, value: PropertyValue(Name=name, Value=value)
document = desktop.loadComponentFromURL("file://" + source, "_blank", 0, (value("Hidden", True),))
document.storeToURL("file://" + target, (value("FilterName", kind), value("Password", "secret")))
document.close(True)
try:
    desktop.terminate()
except Exception:
    pass
office.wait(30)
"""
    target = WORK / name
    profile = "-env:UserInstallation=file://" + str(WORK / "profile")
    run("/usr/bin/python3", source("lock.py", script), document, target, "writer8", profile)
    keep(target, name)


# Tables of LibreOffice Calc, in the encodings of Excel.

ROWS = {
    "de": [["Artikel", "Größe", "Preis"], ["Mütze", "groß", "12,50 €"], ["Schal; lang", "mittel", "9,00 €"]],
    "zh": [["姓名", "电话", "城市"], ["张三", "13800000000", "北京"], ["李四", "13900000000", "上海"]],
    "tw": [["姓名", "電話", "城市"], ["王小明", "0912345678", "台北"], ["陳美玲", "0922333444", "高雄"]],
    "ja": [["氏名", "電話", "住所"], ["山田太郎", "03-1234-5678", "東京都港区"], ["鈴木花子", "06-1234-5678", "大阪市北区"]],
    "ko": [["이름", "전화", "주소"], ["홍길동", "010-1234-5678", "서울특별시"], ["김영희", "010-9876-5432", "부산광역시"]],
}

# Language, number of LibreOffice's encoding, code of the separator.
TABLES = {
    "prices-libreoffice-windows-1252.csv": ("de", 1, 59),
    "contacts-libreoffice-gbk.csv": ("zh", 67, 44),
    "contacts-libreoffice-big5.csv": ("tw", 68, 44),
    "contacts-libreoffice-shift-jis.csv": ("ja", 64, 44),
    "contacts-libreoffice-euc-kr.csv": ("ko", 79, 44),
}


def workbook(language: str) -> Path:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Daten"
    for row in ROWS[language]:
        book.active.append(row)
    path = WORK / f"table-{language}.xlsx"
    book.save(path)
    return path


@makes(*TABLES)
def table(name):
    language, encoding, separator = TABLES[name]
    keep(office(workbook(language), "csv", f"Text - txt - csv (StarCalc):{separator},34,{encoding},1"), name)


@makes("prices-utf16le-semicolons.csv", "prices-utf16le-tabs.txt")
def unicode_text(name):
    """Excel's "Unicode Text": UTF-16LE with a byte order mark, lines ended as on Windows."""
    separator = ";" if "semicolons" in name else "\t"
    lines = [separator.join(f'"{cell}"' if separator in cell else cell for cell in row) for row in ROWS["de"]]
    (HERE / name).write_bytes(b"\xff\xfe" + ("\r\n".join(lines) + "\r\n").encode("utf-16-le"))


@makes("tea-iconv-koi8-r.txt", "tea-iconv-euc-kr.txt", "tea-iconv-euc-jp.txt")
def iconv(name):
    texts = {
        "koi8-r": "Как заваривать чай\n\nВода должна закипеть. Заваривайте чай пять минут.\n",
        "euc-kr": "차를 우리는 방법\n\n물을 끓인 뒤 차를 오 분 동안 우립니다.\n",
        "euc-jp": "お茶の入れ方\n\n湯を沸かし、五分間蒸らします。\n",
    }
    encoding = name.removeprefix("tea-iconv-").removesuffix(".txt")
    made = run("iconv", "-f", "utf-8", "-t", encoding, input=texts[encoding].encode())
    (HERE / name).write_bytes(made.stdout)


@makes("invoice-xlsxwriter.xlsx", "invoice-libreoffice.ods", "invoice-libreoffice.xls")
def invoice(name):
    import xlsxwriter

    path = WORK / "invoice.xlsx"
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet("Rechnung")
    sheet.write_row(0, 0, ["Posten", "Menge", "Einzelpreis", "Summe"])
    sheet.write_row(1, 0, ["Wasserkocher", 2, 39.9])
    sheet.write_formula(1, 3, "=B2*C2", None, 79.8)
    date = book.add_format({"num_format": "yyyy-mm-dd"})
    sheet.write(2, 0, "fällig am")
    sheet.write_datetime(2, 1, datetime.datetime(2026, 12, 24), date)
    book.add_worksheet("備考").write(0, 0, "現金払い")
    book.close()
    filters = {"ods": "calc8", "xls": "MS Excel 97"}
    kind = name.rsplit(".", 1)[1]
    keep(path if kind == "xlsx" else office(path, kind, filters[kind]), name)


# Slides.


@makes("roadmap-python-pptx.pptx", "roadmap-libreoffice.pptx", "roadmap-libreoffice.odp", "roadmap-libreoffice.ppt")
def slides(name):
    from pptx import Presentation

    deck = Presentation()
    for layout in list(deck.slide_layouts):
        if layout.name != "Title and Content":
            deck.slide_layouts.remove(layout)
    slide = deck.slides.add_slide(deck.slide_layouts[0])
    slide.shapes.title.text = "Feuille de route"
    slide.placeholders[1].text = "Ouverture à Lyon en mars"
    slide.notes_slide.notes_text_frame.text = "Parler du budget"
    path = WORK / "roadmap.pptx"
    deck.save(path)
    filters = {"odp": "impress8", "ppt": "MS PowerPoint 97", "pptx": "Impress MS PowerPoint 2007 XML"}
    kind = name.rsplit(".", 1)[1]
    if "python-pptx" not in name:
        if kind == "pptx":
            path = office(path, "odp", filters["odp"])
        path = office(path, kind, filters[kind])
    if kind == "ppt":
        return without_properties(path, name)
    keep(path, name)


def without_properties(path: Path, name: str):
    """Keeps a compound file without its properties, which hold a thumbnail of 600 kB."""
    from extract_msg import OleWriter
    from olefile import OleFileIO

    writer = OleWriter()
    with OleFileIO(path) as file:
        writer.fromOleFile(file)
    writer.deleteEntry("\x05SummaryInformation")
    writer.write(str(HERE / name))


# Documents of pandoc.


@makes("kettle-pandoc.docx", "kettle-pandoc.odt", "kettle-pandoc.rtf", "kettle-pandoc.epub", "kettle-pandoc.pptx")
@makes("kettle-pandoc.html", "kettle.md")
def pandoc(name):
    path = source("kettle.md", MARKDOWN)
    if name.endswith(".md"):
        return keep(path, name)
    run("pandoc", "--standalone", "--output", HERE / name, path)


# Pictures, and scans.


def drawing(lines, size=(620, 400)):
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", size, "white")
    font = ImageFont.truetype("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", 28)
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((30, 30 + 50 * number), line, fill="black", font=font)
    return picture


RECEIPT = ["Quittung Nr. 4711", "Wasserkocher 39,90 EUR", "Lyon, 24.12.2026"]


@makes("receipt-pillow.png", "receipt-pillow.webp", "receipt-pillow.gif", "receipt-pillow.tiff")
@makes("receipt-rotated-pillow.jpg", "receipt-pillow-heif.heic", "receipt-pillow-heif.avif")
def picture(name):
    from PIL import Image

    drawn = drawing(RECEIPT)
    if name.endswith(".jpg"):
        # A phone that is held upright: the dots lie on their side, and a tag says how to turn them.
        exif = Image.Exif()
        exif[0x0112] = 6
        exif[0x010F] = "Phone"
        return drawn.transpose(Image.Transpose.ROTATE_90).save(HERE / name, quality=70, exif=exif)
    if name.endswith((".heic", ".avif")):
        import pillow_heif

        made = pillow_heif.from_pillow(drawn)
        if name.endswith(".avif"):
            return drawn.save(HERE / name, quality=50)
        return made.save(HERE / name, quality=50)
    options = {"tiff": {"compression": "tiff_deflate"}, "webp": {"quality": 60}}
    drawn.save(HERE / name, **options.get(name.rsplit(".", 1)[1], {}))


@makes("scan-pillow.pdf", "scan-fax-pillow.pdf", "scan-libreoffice.pdf")
def scan(name):
    pages = [drawing([f"Seite {number}", *RECEIPT], (620, 877)) for number in (1, 2)]
    if name == "scan-libreoffice.pdf":
        for number, page in enumerate(pages, 1):
            page.save(WORK / f"page{number}.jpg", quality=60)
        body = "".join(f'<p><img src="page{number}.jpg" width="600"></p>' for number in (1, 2))
        document = office(source("scan.html", f"<html><body>{body}</body></html>"), "odt", "writer8")
        return keep(office(document, "pdf", "writer_pdf_Export"), name)
    is_fax = "fax" in name
    pages = [page.convert("1") for page in pages] if is_fax else pages
    options = {} if is_fax else {"quality": 60}
    pages[0].save(HERE / name, save_all=True, append_images=pages[1:], **options)


@makes("locked-qpdf.pdf", "no-printing-qpdf.pdf")
def encrypted(name):
    document = office(writer_document(), "pdf", "writer_pdf_Export")
    user = "secret" if name.startswith("locked") else ""
    run("qpdf", "--encrypt", user, "owner", "256", "--print=none", "--", document, HERE / name)


@makes("locked-msoffcrypto.docx")
def locked_docx(name):
    from msoffcrypto.format.ooxml import OOXMLFile

    document = office(writer_document(), "docx", "MS Word 2007 XML")
    with open(document, "rb") as plain, open(HERE / name, "wb") as locked:
        OOXMLFile(plain).encrypt("secret", locked)


@makes("damaged-libreoffice.docx")
def damaged(name):
    document = office(writer_document(), "docx", "MS Word 2007 XML").read_bytes()
    (HERE / name).write_bytes(document[: len(document) * 2 // 3])


@makes("empty.txt", "order.json", "chart.svg")
def small(name):
    contents = {
        "empty.txt": "",
        "order.json": json.dumps({"order": 4711, "customer": "张三", "items": ["Wasserkocher"]}, indent=1),
        "chart.svg": '<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="200" '
        'height="80">\n <title>Umsatz</title>\n <text x="10" y="40">März: 1.234 €</text>\n</svg>\n',
    }
    (HERE / name).write_bytes(contents[name].encode())


# Mails.


def mail(subject):
    message = EmailMessage(policy=policy.SMTP)
    message["From"] = "Anna Müller <anna@example.com>"
    message["To"] = "shop@example.org"
    message["Subject"] = subject
    message["Date"] = "Mon, 05 Jan 2026 10:00:00 +0100"
    return message


@makes("report-python-email.eml")
def multipart(name):
    message = mail("Quartalsbericht")
    message.set_content("Anbei der Bericht.\n")
    message.add_alternative('<p>Anbei <a href="https://example.org/q4">der Bericht</a>.</p>', subtype="html")
    document = office(writer_document(), "docx", "MS Word 2007 XML").read_bytes()
    kind = {"maintype": "application", "subtype": "octet-stream"}
    message.add_attachment(document, filename="Rückgabe – neu.docx", **kind)
    message.add_attachment("Art;Preis\nMütze;12,50 €\n".encode("cp1252"), filename="Preise.csv", **kind)
    (HERE / name).write_bytes(bytes(message))


@makes("contract-python-email-gb18030.eml")
def gb18030(name):
    message = mail("合同")
    message.set_content("请查收附件。\n地址：𠮷林路一号\n", charset="gb18030", cte="base64")
    (HERE / name).write_bytes(bytes(message))


@makes("forwarded-python-email.eml")
def forwarded(name):
    inner = mail("Lieferung")
    inner.set_content("Wir liefern am Freitag.\n")
    inner.add_attachment("Kiste 1: Wasserkocher\n".encode(), maintype="text", subtype="plain", filename="Liste.txt")
    outer = mail("Fwd: Lieferung")
    outer.set_content("Siehe unten.\n")
    outer.add_attachment(inner)
    (HERE / name).write_bytes(bytes(outer))


@makes("prices-mpack.eml")
def mpack(name):
    table = source("preise.csv", "Art;Preis\nMütze;12,50 €\n".encode("cp1252"))
    run("mpack", "-s", "Preisliste", "-o", WORK / "prices.eml", table)
    keep(WORK / "prices.eml", name)


# Messages of Outlook: properties in a compound file. Programs other than Outlook hardly write them, so the
# script does, with the writer of extract-msg.


def unicode_text_of(text):
    return text.encode("utf-16-le")


def properties(writer, folder, header, fixed, values):
    table = header
    for number, kind, value in fixed:
        table += struct.pack("<HHIq", kind, number, 6, value)
    for number, kind, content in values:
        size = len(content) + {0x1F: 2, 0x1E: 1}.get(kind, 0)
        table += struct.pack("<HHIII", kind, number, 6, size, 0)
        writer.addEntry([*folder, f"__substg1.0_{number:04X}{kind:04X}"], content)
    writer.addEntry([*folder, "__properties_version1.0"], table)


def message_header(recipients, attachments, is_embedded=False):
    counts = struct.pack("<8xIIII", recipients, attachments, recipients, attachments)
    return counts if is_embedded else counts + bytes(8)


SENT = int((datetime.datetime(2026, 1, 5, 9) - datetime.datetime(1601, 1, 1)).total_seconds()) * 10_000_000


def outlook(name, values, fixed=(), attachments=()):
    from extract_msg import OleWriter

    writer = OleWriter()
    base = [
        (0x001A, 0x1F, unicode_text_of("IPM.Note")),
        (0x0C1A, 0x1F, unicode_text_of("Anna Müller")),
        (0x5D01, 0x1F, unicode_text_of("anna@example.com")),
        (0x0E04, 0x1F, unicode_text_of("Bob")),
    ]
    fixed = [(0x0039, 0x40, SENT), (0x340D, 0x03, 0x40000), *fixed]
    properties(writer, [], message_header(1, len(attachments)), fixed, [*base, *values])
    recipient = ["__recip_version1.0_#00000000"]
    writer.addEntry(recipient, storage=True)
    names = [(0x3001, 0x1F, unicode_text_of("Bob")), (0x39FE, 0x1F, unicode_text_of("bob@example.org"))]
    properties(writer, recipient, bytes(8), [(0x0C15, 3, 1), (0x3000, 3, 0)], names)
    for number, attachment in enumerate(attachments):
        folder = [f"__attach_version1.0_#{number:08X}"]
        writer.addEntry(folder, storage=True)
        attachment(writer, folder)
    for guids in ("__substg1.0_00020102", "__substg1.0_00030102", "__substg1.0_00040102"):
        if guids.endswith("00020102"):
            writer.addEntry(["__nameid_version1.0"], storage=True)
        writer.addEntry(["__nameid_version1.0", guids], b"")
    writer.write(str(HERE / name))
    check_by_another_reader(HERE / name)


def check_by_another_reader(path):
    import extract_msg

    message = extract_msg.openMsg(str(path))
    assert message.sender and message.recipients[0].email == "bob@example.org", path
    message.close()


def attached_file(name, content):
    def write(writer, folder):
        values = [(0x3707, 0x1F, unicode_text_of(name)), (0x3701, 0x102, content)]
        properties(writer, folder, bytes(8), [(0x3705, 3, 1)], values)

    return write


def attached_message(values, fixed=()):
    def write(writer, folder):
        properties(writer, folder, bytes(8), [(0x3705, 3, 5)], [])
        inner = [*folder, "__substg1.0_3701000D"]
        writer.addEntry(inner, storage=True)
        values_of_all = [(0x001A, 0x1F, unicode_text_of("IPM.Note")), *values]
        properties(writer, inner, message_header(0, 0, True), [(0x340D, 3, 0x40000), *fixed], values_of_all)

    return write


@makes("offer-extract-msg.msg")
def outlook_plain(name):
    price_list = "Art;Preis\r\nMütze;12,50 €\r\n".encode("cp1252")
    inner = [(0x0037, 0x1F, unicode_text_of("Lieferung")), (0x1000, 0x1F, unicode_text_of("Wir liefern am Freitag."))]
    outlook(
        name,
        [(0x0037, 0x1F, unicode_text_of("Angebot 合同")), (0x1000, 0x1F, unicode_text_of("Anbei das Angebot.\r\nAnna"))],
        attachments=[attached_file("Preise – neu.csv", price_list), attached_message(inner)],
    )


@makes("page-extract-msg.msg")
def outlook_html(name):
    page = '<html><body><p>请签署 <a href="https://example.org/sign?t=1">合同</a>。</p></body></html>'.encode("gbk")
    outlook(
        name,
        [(0x0037, 0x1F, unicode_text_of("签署")), (0x1013, 0x102, page)],
        fixed=[(0x3FDE, 3, 936)],
    )


@makes("rich-extract-msg.msg")
def outlook_rich(name):
    import compressed_rtf

    rich = rb"{\rtf1\ansi\ansicpg1251\deff0{\fonttbl{\f0\fswiss\fcharset204 Arial;}}\pard\f0 "
    rich += "".join(f"\\'{byte:02x}" for byte in "Мы доставим в пятницу.".encode("cp1251")).encode() + rb"\par}"
    outlook(name, [(0x0037, 0x1F, unicode_text_of("Доставка")), (0x1009, 0x102, compressed_rtf.compress(rich))])


def main():
    wanted = sys.argv[1:]
    for name, maker in MAKERS.items():
        if not wanted or any(part in name for part in wanted):
            maker(name)
            print(name, (HERE / name).stat().st_size)
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
