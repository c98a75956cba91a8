//! Drawing of the state.

use std::time::{Duration, Instant};

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span, Text},
    widgets::{Block as Border, Borders, Clear, Paragraph},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    markdown,
    state::{Approval, Block, Item, SessionList, State, ToolState},
    text::{Piece, clean, wrap},
};

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Largest share of the height that the input or an approval takes.
const MAX_INPUT_ROWS: usize = 8;

/// Colors, unless the person wants none.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    pub has_color: bool,
}

impl Theme {
    fn color(self, color: Color) -> Style {
        let style = Style::default();
        if self.has_color { style.fg(color) } else { style }
    }

    fn dim(self) -> Style {
        Style::default().add_modifier(Modifier::DIM)
    }

    fn bold(self, color: Color) -> Style {
        self.color(color).add_modifier(Modifier::BOLD)
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &mut State, theme: Theme, now: Instant) {
    let area = frame.area();
    let width = usize::from(area.width);
    let input = state.input.rows(width.saturating_sub(2));
    let input_rows = input.rows.len().clamp(1, MAX_INPUT_ROWS);
    let approval =
        state.approval().map(|approval| approval_lines(state, approval, width, theme, now));
    let approval_rows = approval.as_ref().map_or(0, Vec::len).min(usize::from(area.height) * 2 / 3);
    let [transcript_area, approval_area, status_area, input_area] = Layout::vertical([
        Constraint::Min(1),
        Constraint::Length(rows(approval_rows)),
        Constraint::Length(1),
        Constraint::Length(rows(input_rows + 1)),
    ])
    .areas(area);

    draw_transcript(frame, state, transcript_area, theme);
    if let Some(lines) = approval {
        frame.render_widget(Paragraph::new(Text::from(lines)), approval_area);
    }
    let status = Paragraph::new(status(state, width, theme, now));
    frame.render_widget(status, status_area);

    // The rows around the cursor, if there are more than fit.
    let skipped = (input.cursor.0 + 1).saturating_sub(input_rows);
    let prompt = |number: usize| if number == 0 { "› " } else { "  " };
    let lines: Vec<Line<'_>> = input
        .rows
        .iter()
        .enumerate()
        .skip(skipped)
        .take(input_rows)
        .map(|(number, row)| {
            Line::from(vec![Span::styled(prompt(number), theme.bold(Color::Cyan)), row.into()])
        })
        .collect();
    let border = Border::default().borders(Borders::TOP).border_style(theme.dim());
    frame.render_widget(Paragraph::new(Text::from(lines)).block(border), input_area);
    let (row, column) = (input.cursor.0 - skipped, input.cursor.1);
    let at = (input_area.x + rows(column + 2), input_area.y + 1 + rows(row));
    if state.list.is_none() {
        frame.set_cursor_position(at);
    }
    if let Some(list) = &state.list {
        draw_sessions(frame, list, area, theme);
    }
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Draws the end of the transcript, or what was scrolled to.
fn draw_transcript(frame: &mut Frame<'_>, state: &mut State, area: Rect, theme: Theme) {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    state.page = height;
    for block in &mut state.blocks {
        if block.lines.as_ref().is_none_or(|(known, _)| *known != width) {
            block.lines = Some((width, lines(&block.item, width, theme)));
        }
    }
    let known = |block: &Block| block.lines.as_ref().map_or(0, |(_, lines)| lines.len());
    let total: usize = state.blocks.iter().map(known).sum();
    state.scroll = state.scroll.min(total.saturating_sub(height));
    let end = total - state.scroll;
    let begin = end.saturating_sub(height);
    let all = state.blocks.iter().filter_map(|block| block.lines.as_ref());
    let shown: Vec<Line<'static>> =
        all.flat_map(|(_, lines)| lines).skip(begin).take(end - begin).cloned().collect();
    if total == 0 {
        let hint = "Type a message. Enter sends, Alt-Enter begins a line, Tab lists the sessions.";
        frame.render_widget(Paragraph::new(Line::styled(hint, theme.dim())), area);
        return;
    }
    frame.render_widget(Paragraph::new(Text::from(shown)), area);
}

fn lines(item: &Item, width: usize, theme: Theme) -> Vec<Line<'static>> {
    let none: Piece = (String::new(), Style::default());
    let wrapped = |text: &str, style: Style, first: Piece, next: Piece| {
        wrap(&[(clean(text).trim_end().to_owned(), style)], width, &first, &next)
    };
    let indent: Piece = ("  ".to_owned(), Style::default());
    match item {
        Item::User(text) => {
            let mark = ("› ".to_owned(), theme.bold(Color::Cyan));
            let mut lines = vec![Line::default()];
            lines.extend(wrapped(text, theme.bold(Color::Cyan), mark, indent));
            lines
        }
        Item::Agent(text) => {
            let mut lines = vec![Line::default()];
            lines.extend(markdown::render(text, width, theme.has_color));
            lines
        }
        Item::Thinking(text) => {
            let style = theme.dim().add_modifier(Modifier::ITALIC);
            wrapped(text, style, indent.clone(), indent)
        }
        Item::Tool { name, state, .. } => {
            let (mark, color) = match state {
                ToolState::Running => ("⚙ ", Color::Yellow),
                ToolState::Done => ("✓ ", Color::Green),
                ToolState::Failed => ("✗ ", Color::Red),
            };
            let said = match state {
                ToolState::Failed => format!("{name} failed"),
                ToolState::Running | ToolState::Done => name.clone(),
            };
            wrapped(&said, theme.dim(), (format!("  {mark}"), theme.color(color)), indent)
        }
        Item::Note(text) => wrapped(text, theme.dim(), none.clone(), none),
        Item::Error(text) => {
            wrapped(text, Style::default(), ("error: ".to_owned(), theme.bold(Color::Red)), indent)
        }
    }
}

/// Everything that the call would do, and the keys that decide.
fn approval_lines(
    state: &State,
    approval: &Approval,
    width: usize,
    theme: Theme,
    now: Instant,
) -> Vec<Line<'static>> {
    let asked = &approval.asked;
    let margin: Piece = ("┃ ".to_owned(), theme.color(Color::Yellow));
    let left = Duration::from_millis(asked.left_ms)
        .saturating_sub(now.saturating_duration_since(approval.since));
    let always = if asked.pattern.is_empty() { "exactly this" } else { &asked.pattern };
    let keys = if state.input.is_empty() {
        "y once · a always · n no"
    } else {
        "empty the input (Ctrl-U) to decide"
    };
    let pieces = [
        (
            format!("approval needed ({}): {}\n", clean(&asked.slug), clean(&asked.tool)),
            theme.bold(Color::Yellow),
        ),
        (format!("{}\n", clean(&asked.subject)), Style::default()),
        (format!("always would allow: {}\n", clean(always)), theme.dim()),
        (format!("{keys}, within {} s", left.as_secs()), theme.bold(Color::Yellow)),
    ];
    wrap(&pieces, width, &margin, &margin)
}

fn status(state: &State, width: usize, theme: Theme, now: Instant) -> Line<'static> {
    let mut parts = vec![Span::styled(clean(&state.session), theme.bold(Color::Green))];
    let mut add =
        |text: String, style: Style| parts.push(Span::styled(format!(" │ {text}"), style));
    if let Some(why) = &state.unreachable {
        add(format!("no connection, trying again: {}", clean(why)), theme.bold(Color::Red));
    }
    match &state.turn {
        Some(turn) => {
            let waited = now.saturating_duration_since(turn.since);
            let frames = FRAMES.len() as u128;
            let frame = FRAMES[usize::try_from(waited.as_millis() / 100 % frames).unwrap_or(0)];
            let text = format!("{frame} {} {} s", clean(&turn.phase), waited.as_secs());
            add(text, theme.color(Color::Yellow));
            add("Esc stops".to_owned(), theme.dim());
        }
        None if state.runs_elsewhere => {
            add("a turn runs that was begun elsewhere".to_owned(), theme.color(Color::Yellow));
        }
        None => add("Tab sessions · Ctrl-N new · Ctrl-C leaves".to_owned(), theme.dim()),
    }
    if state.queued() > 0 {
        add(format!("{} waiting", state.queued()), theme.dim());
    }
    if state.scroll > 0 {
        add(format!("{} lines below", state.scroll), theme.dim());
    }
    let line = Line::from(parts);
    if line.width() > width { shortened(line, width) } else { line }
}

fn shortened(line: Line<'static>, width: usize) -> Line<'static> {
    let mut left = width;
    let mut spans = Vec::new();
    for span in line.spans {
        let columns = span.content.width();
        if columns <= left {
            left -= columns;
            spans.push(span);
            continue;
        }
        let text = crate::screen::shorten(&span.content, left.max(1));
        spans.push(Span::styled(text, span.style));
        break;
    }
    Line::from(spans)
}

fn draw_sessions(frame: &mut Frame<'_>, list: &SessionList, area: Rect, theme: Theme) {
    let title = " Sessions: Enter opens, n begins a new one, Esc closes ";
    let border = Border::bordered().title(title).border_style(theme.color(Color::Green));
    let inner = border.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(border, area);
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let Some(sessions) = &list.sessions else {
        frame.render_widget(Paragraph::new("loading…"), inner);
        return;
    };
    if sessions.is_empty() {
        frame.render_widget(Paragraph::new("there are none"), inner);
        return;
    }
    let skipped = (list.selected + 1).saturating_sub(height);
    let shown = sessions.iter().enumerate().skip(skipped).take(height);
    let lines: Vec<Line<'_>> = shown
        .map(|(at, session)| {
            let name = if session.label.is_empty() { &session.key } else { &session.label };
            let waits = if session.approvals > 0 { " · needs an approval" } else { "" };
            let state = session.state.to_lowercase();
            let text = format!("{} · {} turns · {state}{waits}", clean(name), session.turns);
            let text = crate::screen::shorten(&text, width);
            let style = Style::default();
            if at == list.selected {
                Line::styled(text, style.add_modifier(Modifier::REVERSED))
            } else {
                Line::styled(text, style)
            }
        })
        .collect();
    frame.render_widget(Paragraph::new(Text::from(lines)), inner);
}

#[cfg(test)]
mod tests {
    use holdfast_proto::gateway::v1::{ApprovalRequested, RunEvent, TextDelta, run_event::Event};
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::tui::state::Update;

    fn screen(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let theme = Theme { has_color: true };
        terminal.draw(|frame| draw(frame, state, theme, Instant::now())).unwrap();
        terminal.backend().to_string()
    }

    fn state() -> State {
        State::new("main".to_owned(), "agent:main:main".to_owned())
    }

    fn tell(state: &mut State, event: Event) {
        let event = RunEvent { event: Some(event), ..RunEvent::default() };
        state.update(Update::Event(Box::new(event)));
    }

    #[test]
    fn the_end_of_the_transcript_is_shown_and_the_rest_by_scrolling() {
        let mut state = state();
        let text = (1..=60).map(|n| format!("line {n}\n\n")).collect();
        tell(&mut state, Event::Text(TextDelta { text }));

        let end = screen(&mut state, 40, 12);
        assert!(end.contains("line 60") && !end.contains("line 1 "), "{end}");
        state.scroll = usize::MAX;
        let begin = screen(&mut state, 40, 12);
        assert!(begin.contains("line 1 ") && !begin.contains("line 60"), "{begin}");
        assert!(screen(&mut state, 20, 3).contains("main"));
    }

    #[test]
    fn an_approval_shows_all_that_the_call_would_do() {
        let mut state = state();
        tell(
            &mut state,
            Event::ApprovalRequested(ApprovalRequested {
                approval_id: "apr_1".to_owned(),
                slug: "1a2b".to_owned(),
                tool: "exec".to_owned(),
                subject: "command: \u{1b}[2Jrm -r 学习".to_owned(),
                left_ms: 120_000,
                ..ApprovalRequested::default()
            }),
        );

        let shown = screen(&mut state, 60, 20);

        // Each wide character is followed by the cell that it covers.
        assert!(shown.contains("approval needed (1a2b): exec"), "{shown}");
        assert!(shown.contains("rm -r 学") && !shown.contains('\u{1b}'), "{shown}");
        assert!(shown.contains("y once · a always · n no"), "{shown}");
    }
}
