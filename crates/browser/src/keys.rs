//! Keyboard keys by name, such as `Enter` or `Control+a`.

use serde_json::{Value, json};

/// Keys with a name: the name, the DOM code, and the Windows virtual key code.
const NAMED_KEYS: [(&str, &str, u32); 17] = [
    ("Enter", "Enter", 13),
    ("Tab", "Tab", 9),
    ("Escape", "Escape", 27),
    ("Backspace", "Backspace", 8),
    ("Delete", "Delete", 46),
    ("ArrowLeft", "ArrowLeft", 37),
    ("ArrowUp", "ArrowUp", 38),
    ("ArrowRight", "ArrowRight", 39),
    ("ArrowDown", "ArrowDown", 40),
    ("Home", "Home", 36),
    ("End", "End", 35),
    ("PageUp", "PageUp", 33),
    ("PageDown", "PageDown", 34),
    ("Insert", "Insert", 45),
    ("Space", "Space", 32),
    ("F1", "F1", 112),
    ("F5", "F5", 116),
];

/// Key press with its modifiers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    modifiers: u32,
    key: String,
    code: String,
    number: u32,
    text: String,
}

impl Key {
    /// Parses a key name with modifiers; returns `None` for an unknown key.
    pub(crate) fn parse(said: &str) -> Option<Self> {
        let mut modifiers = 0;
        let mut rest = said.trim();
        while let Some((held, after)) = rest.split_once('+').filter(|(_, after)| !after.is_empty())
        {
            modifiers |= match held.to_lowercase().as_str() {
                "alt" => 1,
                "control" | "ctrl" => 2,
                "meta" | "cmd" | "command" => 4,
                "shift" => 8,
                _ => return None,
            };
            rest = after;
        }
        if let Some((name, code, number)) =
            NAMED_KEYS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(rest))
        {
            let text = match *name {
                "Enter" => "\r",
                "Space" => " ",
                _ => "",
            };
            let key = if *name == "Space" { " " } else { name };
            let (key, code) = (key.to_owned(), (*code).to_owned());
            return Some(Self { modifiers, key, code, number: *number, text: text.to_owned() });
        }
        let mut letters = rest.chars();
        let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
        let upper = letter.to_ascii_uppercase();
        let code = match upper {
            'A'..='Z' => format!("Key{upper}"),
            '0'..='9' => format!("Digit{upper}"),
            _ => String::new(),
        };
        let number = if code.is_empty() { 0 } else { u32::from(upper) };
        // With Control or Meta held, a letter is a command and types nothing.
        let text = if modifiers & 6 == 0 { letter.to_string() } else { String::new() };
        Some(Self { modifiers, key: letter.to_string(), code, number, text })
    }

    /// Key-down and key-up events, as parameters of `Input.dispatchKeyEvent`.
    pub(crate) fn events(&self) -> [Value; 2] {
        let event = |kind: &str| {
            json!({
                "type": kind,
                "modifiers": self.modifiers,
                "key": self.key,
                "code": self.code,
                "windowsVirtualKeyCode": self.number,
            })
        };
        let mut down = event(if self.text.is_empty() { "rawKeyDown" } else { "keyDown" });
        if !self.text.is_empty() {
            down["text"] = json!(self.text);
        }
        [down, event("keyUp")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_names() {
        for (said, modifiers, key, code, number, text) in [
            ("Enter", 0, "Enter", "Enter", 13, "\r"),
            ("space", 0, " ", "Space", 32, " "),
            ("Control+a", 2, "a", "KeyA", 65, ""),
            ("ctrl+shift+ArrowLeft", 10, "ArrowLeft", "ArrowLeft", 37, ""),
            ("ä", 0, "ä", "", 0, "ä"),
            ("+", 0, "+", "", 0, "+"),
            ("Shift++", 8, "+", "", 0, "+"),
        ] {
            let (key, code, text) = (key.to_owned(), code.to_owned(), text.to_owned());
            assert_eq!(
                Key::parse(said),
                Some(Key { modifiers, key, code, number, text }),
                "{said}"
            );
        }
        for said in ["", "Entr", "Hyper+a", "ab"] {
            assert_eq!(Key::parse(said), None, "{said}");
        }
    }
}
