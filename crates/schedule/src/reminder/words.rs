//! Vocabulary of times in English and Chinese.

use jiff::civil::Weekday;

pub(super) fn digit(c: char) -> Option<i64> {
    let number = "〇一二三四五六七八九".chars().zip(0..).find(|(known, _)| *known == c);
    match c {
        '零' => Some(0),
        '两' => Some(2),
        _ => number.map(|(_, number)| number),
    }
}

/// Normalises a character: full-width and traditional forms.
pub(super) fn plain(c: char) -> char {
    match c {
        '０'..='９' => char::from_digit(u32::from(c) - u32::from('０'), 10).unwrap_or(c),
        '：' | '︰' => ':',
        '／' => '/',
        '－' => '-',
        '\u{3000}' => ' ',
        '點' => '点',
        '鐘' => '钟',
        '後' => '后',
        '兩' => '两',
        '週' => '周',
        '號' => '号',
        '時' => '时',
        '個' => '个',
        '禮' => '礼',
        '這' => '这',
        _ => c,
    }
}

/// Returns the weekday of an English name or its first three letters.
pub(super) fn weekday(word: &str) -> Option<Weekday> {
    let names = [
        ("monday", Weekday::Monday),
        ("tuesday", Weekday::Tuesday),
        ("wednesday", Weekday::Wednesday),
        ("thursday", Weekday::Thursday),
        ("friday", Weekday::Friday),
        ("saturday", Weekday::Saturday),
        ("sunday", Weekday::Sunday),
    ];
    names.into_iter().find(|(name, _)| *name == word || name[..3] == *word).map(|(_, day)| day)
}

/// Returns the weekday of its Chinese number, `一` to `六`, `日` or `天`.
pub(super) fn weekday_of_number(c: char) -> Option<Weekday> {
    match c {
        '一' => Some(Weekday::Monday),
        '二' => Some(Weekday::Tuesday),
        '三' => Some(Weekday::Wednesday),
        '四' => Some(Weekday::Thursday),
        '五' => Some(Weekday::Friday),
        '六' => Some(Weekday::Saturday),
        '日' | '天' => Some(Weekday::Sunday),
        _ => None,
    }
}

/// Returns the unit of an English name or abbreviation.
pub(super) fn unit(word: &str) -> Option<Unit> {
    Some(match word {
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Seconds(1),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Seconds(60),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Seconds(3_600),
        "d" | "day" | "days" => Unit::Days(1),
        "w" | "week" | "weeks" => Unit::Days(7),
        _ => return None,
    })
}

/// Length of a time unit. Days are calendar days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds(i64),
    Days(i64),
}

/// Returns the value of an English number word, up to twelve.
pub(super) fn number(word: &str) -> Option<i64> {
    let words = [
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    if matches!(word, "a" | "an") {
        return Some(1);
    }
    (1..).zip(words).find(|(_, known)| *known == word).map(|(number, _)| number)
}
