//! Keys.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use holdfast_proto::gateway::v1::Decision;

use super::{Effect, Item, SessionList, State};

impl State {
    /// Applies a key.
    pub fn key(&mut self, key: KeyEvent, now: Instant) -> Vec<Effect> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if has_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            if self.input.is_empty() || key.code == KeyCode::Char('d') {
                return vec![Effect::Quit];
            }
            self.input.take();
            return Vec::new();
        }
        if self.list.is_some() {
            return self.list_key(key);
        }
        if let Some(decision) = decision(key).filter(|_| self.can_decide(now)) {
            let id = self.approvals.remove(0).asked.approval_id;
            return vec![Effect::Decide(id, decision)];
        }
        match key.code {
            KeyCode::Enter if self.is_newline(key) => self.input.insert("\n"),
            KeyCode::Enter => return self.send(),
            KeyCode::Char('j') if has_control => self.input.insert("\n"),
            KeyCode::Esc if self.turn.is_some() || self.runs_elsewhere => {
                return vec![Effect::Cancel];
            }
            KeyCode::Char('o') if has_control => return self.show_list(),
            KeyCode::Tab => return self.show_list(),
            KeyCode::Char('n') if has_control => return self.new_session(),
            KeyCode::Char('u') if has_control => self.input.delete_line(),
            KeyCode::Char('w') if has_control => self.input.delete_word(),
            KeyCode::Char('a') if has_control => self.input.home(),
            KeyCode::Char('e') if has_control => self.input.end(),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_add(self.page.max(2) - 1),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_sub(self.page.max(2) - 1),
            KeyCode::Up if has_control => self.scroll = self.scroll.saturating_add(1),
            KeyCode::Down if has_control => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Up => self.input.up(),
            KeyCode::Down => self.input.down(),
            KeyCode::Left => self.input.left(),
            KeyCode::Right => self.input.right(),
            KeyCode::Home => self.input.home(),
            KeyCode::End => self.input.end(),
            KeyCode::Backspace => self.input.backspace(),
            KeyCode::Delete => self.input.delete(),
            // The first letter of a decision that comes too early must not become a message.
            KeyCode::Char('y' | 'a' | 'n')
                if self.approval().is_some() && self.input.is_empty() => {}
            KeyCode::Char(c) if !has_control => self.input.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Vec::new()
    }

    fn is_newline(&self, key: KeyEvent) -> bool {
        key.modifiers.intersects(KeyModifiers::ALT | KeyModifiers::SHIFT)
    }

    fn send(&mut self) -> Vec<Effect> {
        let text = self.input.take();
        if text.trim().is_empty() {
            return Vec::new();
        }
        if matches!(text.trim(), "/exit" | "/quit") {
            return vec![Effect::Quit];
        }
        self.scroll = 0;
        self.push(Item::User(text.clone()));
        if self.turn.is_some() {
            return vec![Effect::Queue(text)];
        }
        self.begin_turn();
        vec![Effect::Send(text)]
    }

    fn show_list(&mut self) -> Vec<Effect> {
        self.list = Some(SessionList::default());
        vec![Effect::LoadSessions]
    }

    fn new_session(&mut self) -> Vec<Effect> {
        let name = uuid::Uuid::now_v7().simple().to_string();
        // The last digits of the id are random.
        let session = format!("agent:{}:api:chat-{}", self.agent, &name[name.len() - 8..]);
        self.open(self.agent.clone(), session);
        vec![Effect::Opened]
    }

    fn list_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        let Some(list) = &mut self.list else { return Vec::new() };
        let count = list.sessions.as_ref().map_or(0, Vec::len);
        match key.code {
            KeyCode::Esc | KeyCode::Tab | KeyCode::Char('q') => self.list = None,
            KeyCode::Up | KeyCode::Char('k') => list.selected = list.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => {
                list.selected = (list.selected + 1).min(count.saturating_sub(1));
            }
            KeyCode::PageUp => list.selected = list.selected.saturating_sub(10),
            KeyCode::PageDown => {
                list.selected = (list.selected + 10).min(count.saturating_sub(1));
            }
            KeyCode::Char('n') if !has_control => return self.new_session(),
            KeyCode::Enter => {
                let chosen = list.sessions.as_ref().and_then(|all| all.get(list.selected));
                if let Some(session) = chosen.cloned() {
                    self.open(session.agent, session.key);
                    return vec![Effect::Opened];
                }
            }
            _ => {}
        }
        Vec::new()
    }
}

fn decision(key: KeyEvent) -> Option<Decision> {
    if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
        return None;
    }
    match key.code {
        KeyCode::Char('y') => Some(Decision::AllowOnce),
        KeyCode::Char('a') => Some(Decision::AllowAlways),
        KeyCode::Char('n') => Some(Decision::Deny),
        _ => None,
    }
}
