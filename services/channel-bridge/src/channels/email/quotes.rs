//! Removal of what a mail quotes: the agent has the conversation already.
//!
//! Only the quotation after the text is removed. If the person answers between the quoted lines,
//! these stay. If nothing else is left, all stays.

/// Lines that begin the quotation or the signature of a mail, as clients write them.
const SEPARATORS: [&str; 6] = [
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "----- Original Message -----",
    "________________________________",
    "--- original message ---",
    "Sent from my ",
];

/// Beginning of the line before a quotation, and the verb in it, in the languages of clients.
const ATTRIBUTIONS: [(&str, &str); 6] = [
    ("On ", " wrote"),
    ("Am ", " schrieb"),
    ("Le ", " écrit"),
    ("El ", " escribió"),
    ("Il ", " ha scritto"),
    ("Op ", " schreef"),
];

/// Returns the text without the quotation and the signature at its end.
#[must_use]
pub fn without_quotation(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let end = (0..lines.len()).find(|at| begins_quotation(&lines, *at)).unwrap_or(lines.len());
    let kept = lines[..end].join("\n");
    let kept = kept.trim();
    if kept.is_empty() { text.trim().to_owned() } else { kept.to_owned() }
}

fn begins_quotation(lines: &[&str], at: usize) -> bool {
    let line = lines[at];
    if line == "--" || SEPARATORS.iter().any(|separator| line.starts_with(separator)) {
        return true;
    }
    // All that follows is quoted.
    if line.starts_with('>') {
        return lines[at..].iter().all(|line| line.is_empty() || line.starts_with('>'));
    }
    // Outlook writes the header of the mail.
    let follows = |n: usize, starts: &[&str]| {
        lines.get(at + n).is_some_and(|line| starts.iter().any(|start| line.starts_with(start)))
    };
    if (line.starts_with("From: ") && follows(1, &["Sent: ", "Date: "]))
        || (line.starts_with("Von: ") && follows(1, &["Gesendet: ", "Datum: "]))
    {
        return true;
    }
    is_attribution(lines, at)
}

/// Whether a quotation follows this line, which may be wrapped into two.
fn is_attribution(lines: &[&str], at: usize) -> bool {
    let joined = lines.get(at + 1).map(|next| format!("{} {next}", lines[at]));
    let fits = |text: &str| {
        let has_date = text.chars().any(|letter| letter.is_ascii_digit());
        let is_known =
            |(start, verb): &(&str, &str)| text.starts_with(start) && text.contains(verb);
        text.ends_with(':') && has_date && ATTRIBUTIONS.iter().any(is_known)
    };
    let length = match (fits(lines[at]), joined.is_some_and(|text| fits(&text))) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => return false,
    };
    let rest = &lines[at + length..];
    let is_quoted = |line: &&str| line.is_empty() || line.starts_with('>');
    let has_quotes = rest.iter().any(|line| line.starts_with('>'));
    // HTML that was turned into text has no `>`.
    !has_quotes || rest.iter().all(is_quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quotation_and_the_signature_are_removed() {
        for quoted in [
            "yes\n\nOn Mon, 5 Jan 2026 at 10:00, Agent <a@x> wrote:\n> really?\n>\n> x\n",
            "yes\n\nOn Mon, 5 Jan 2026 at 10:00, Agent\n<a@x> wrote:\n\n> really?\n",
            "yes\n\nAm 05.01.26 um 10:00 schrieb Agent:\n> wirklich?\n",
            "yes\n\n-----Original Message-----\nFrom: a\n\nreally?",
            "yes\n\nFrom: Agent <a@x>\nSent: Monday\nTo: b\n\nreally?",
            "yes\n-- \nAnna\n+49 1",
            "yes\n> really?",
            "yes\n\nOn 5 Jan 2026, Agent wrote:\nreally?\n",
        ] {
            assert_eq!(without_quotation(quoted), "yes", "{quoted}");
        }
    }

    #[test]
    fn what_the_person_wrote_stays() {
        for text in [
            "> first?\nyes\n\n> second?\nno",
            "On 5 Jan you wrote:\n> first?\nyes",
            "On Monday we met.",
            "a\n\nb",
            "> only a quotation",
        ] {
            assert_eq!(without_quotation(text), text);
        }
    }
}
