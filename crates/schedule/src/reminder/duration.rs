//! Parser for durations from now: `in 20 minutes`, `一个半小时后`.

use super::{
    cursor::Cursor,
    read::ParsedTime,
    words::{Unit, number, unit},
};

pub(super) fn parse_duration(mut text: Cursor<'_>) -> Option<ParsedTime> {
    let (mut days, mut seconds, mut some) = (0, 0, false);
    text.eat_word("in");
    loop {
        text.gap();
        if some {
            text.eat_word("and");
            text.gap();
        }
        let mut ahead = text;
        let Some((halves, unit)) = amount(&mut ahead, some) else { break };
        text = ahead;
        match unit {
            Unit::Seconds(each) => seconds += halves * each / 2,
            Unit::Days(each) if halves % 2 == 0 => days += halves / 2 * each,
            Unit::Days(each) => seconds += halves * each * 43_200,
        }
        some = true;
    }
    text.gap();
    if !text.eat_words("from now") && !text.eat_word("later") {
        let _ = text.eat("以后") || text.eat("之后") || text.eat("后");
    }
    (some && text.is_done()).then_some(ParsedTime::Later { days, seconds })
}

/// Parses an amount. Returns the number of halves and their unit.
fn amount(text: &mut Cursor<'_>, is_second: bool) -> Option<(i64, Unit)> {
    text.gap();
    if text.eat_word("half") {
        text.gap();
        let _ = text.eat_word("an") || text.eat_word("a");
        return parse_unit(text).map(|unit| (1, unit));
    }
    if text.eat("半") {
        text.eat("个");
        return parse_unit(text).map(|unit| (1, unit));
    }
    let whole = parse_count(text)?;
    text.eat("个");
    let half = i64::from(text.eat("半"));
    let unit = parse_unit(text)?;
    let mut ahead = *text;
    let is_half = !is_second && ahead.eat_words("and a half");
    if is_half {
        *text = ahead;
    }
    Some((whole * 2 + half + i64::from(is_half), unit))
}

pub(super) fn parse_count(text: &mut Cursor<'_>) -> Option<i64> {
    if let Some((number, _)) = text.number() {
        return Some(number);
    }
    number(text.word()?)
}

pub(super) fn parse_unit(text: &mut Cursor<'_>) -> Option<Unit> {
    text.gap();
    let chinese = [
        ("分钟", Unit::Seconds(60)),
        ("分", Unit::Seconds(60)),
        ("刻钟", Unit::Seconds(900)),
        ("小时", Unit::Seconds(3_600)),
        ("钟头", Unit::Seconds(3_600)),
        ("秒钟", Unit::Seconds(1)),
        ("秒", Unit::Seconds(1)),
        ("天", Unit::Days(1)),
        ("周", Unit::Days(7)),
        ("星期", Unit::Days(7)),
        ("礼拜", Unit::Days(7)),
    ];
    text.eat_any(&chinese).or_else(|| unit(text.word()?))
}
