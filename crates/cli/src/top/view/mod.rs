//! Draws the state: every state is shown by a word or a sign, and colour only repeats it.

mod body;
mod decisions;
mod numbers;
mod over;
mod playback;
mod refusals;
mod scopes;
mod sources;
mod table;
mod tiers;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::state::State;
use crate::args::Pane;
use crate::escape;
use table::{cut, fit, line, wrapped};

/// From this width and height on, all panes are shown at once.
const ALL_FROM: (u16, u16) = (160, 40);
/// Lines that the state of the daemon may take.
const STATE_LINES: usize = 3;

/// How things are set off.
#[derive(Clone, Copy, Debug)]
pub struct Paint {
    /// Whether there are colours.
    pub colour: bool,
}

impl Paint {
    fn bad(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        if self.colour { style.fg(Color::Red) } else { style }
    }

    fn title(self, front: bool) -> Style {
        let style = if front { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        if self.colour { style.fg(Color::Cyan) } else { style }
    }
}

/// Rows of the pane in front.
pub fn rows(state: &State) -> usize {
    body::body(state, state.pane).rows.len()
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State, paint: Paint) {
    let area = frame.area();
    let told = told(state);
    let lines = wrapped(&told.0, area.width.into());
    let state_lines = lines.len().min(STATE_LINES) as u16;
    let [head, tabs, said, main, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(state_lines),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    put(frame, head, 0, &heading(state, head.width.into()), Style::new().add_modifier(Modifier::BOLD));
    put(frame, tabs, 0, &tabs_of(state), Style::new());
    let style = if told.1 { paint.bad() } else { Style::new() };
    for (n, text) in lines.iter().take(STATE_LINES).enumerate() {
        put(frame, said, n as u16, text, style);
    }
    put(frame, foot, 0, &footer(state), Style::new());
    if let Some(over) = &state.over {
        over::draw(frame, main, over, state.playback.is_some());
    } else if area.width >= ALL_FROM.0 && area.height >= ALL_FROM.1 {
        all(frame, main, state, paint);
    } else {
        pane(frame, main, state, state.pane, paint);
    }
}

/// Writes a line of an area, cut to its width.
fn put(frame: &mut Frame<'_>, area: Rect, row: u16, text: &str, style: Style) {
    if row < area.height {
        let at = Rect { y: area.y + row, height: 1, ..area };
        frame.render_widget(Line::from(Span::styled(cut(text, area.width.into()), style)), at);
    }
}

fn heading(state: &State, width: usize) -> String {
    if let Some(playback) = &state.playback {
        return playback::heading(playback, state.shown().reading.as_ref(), width);
    }
    let shown = state.shown();
    let word = match (&shown.gone, state.is_paused()) {
        (Some(_), _) => "NO DAEMON",
        (None, true) => "PAUSED",
        (None, false) => "LIVE",
    };
    let mut left = format!("thermocline {}", env!("CARGO_PKG_VERSION"));
    if let Some(reading) = &shown.reading {
        // Only our own engine has a rule.
        let decides = match &reading.rule {
            Some(rule) => format!("rule {rule}"),
            None => format!("manager {}", reading.manager),
        };
        left = format!(
            "thermocline {} (pid {}), {} for {}, {decides}",
            reading.version,
            reading.pid,
            reading.mode,
            numbers::span(reading.uptime_ns.0 / 1_000_000_000),
        );
        if let Some(cpu) = shown.rates.cpu {
            left += &format!(", CPU {:.1} %", cpu * 100.0);
        }
    }
    ends(&left, word, width)
}

/// A line with a text at each end; the left one is cut to what the right one leaves.
fn ends(left: &str, right: &str, width: usize) -> String {
    let left = cut(&escape::name(left), width.saturating_sub(right.len() + 1));
    let gap = width.saturating_sub(Span::raw(left.as_str()).width() + right.len());
    format!("{left}{}{right}", " ".repeat(gap))
}

fn tabs_of(state: &State) -> String {
    let tab = |(n, pane): (usize, &Pane)| match *pane == state.pane {
        true => format!("[{} {}]", n + 1, pane.title()),
        false => format!(" {} {} ", n + 1, pane.title()),
    };
    let mut out = Pane::ALL.iter().enumerate().map(tab).collect::<Vec<_>>().join(" ");
    if state.typing {
        out += &format!("  filter: {}_", escape::name(&state.filter));
    } else if !state.filter.is_empty() {
        out += &format!("  filter: {}", escape::name(&state.filter));
    }
    out
}

/// How the daemon is, and whether that is bad.
fn told(state: &State) -> (String, bool) {
    let shown = state.shown();
    let (text, bad) = if let Some(playback) = &state.playback {
        playback.told.clone()
    } else if let Some(why) = &shown.gone {
        let old = if shown.reading.is_some() { "; what is shown is its last" } else { "" };
        (format!("waiting for the daemon{old}: {why}"), true)
    } else if let Some(reading) = &shown.reading {
        let more = |n: usize| if n > 0 { format!(" (and {n} more findings)") } else { String::new() };
        if let Some(ms) = reading.loop_late_ms {
            (
                format!("the daemon's loop has not turned for {:.1} s: something keeps it", ms as f64 / 1e3),
                true,
            )
        } else if let Some(trouble) = &reading.trouble {
            (format!("trouble: {trouble}{}", more(reading.findings.len())), true)
        } else if let Some(worst) = reading.findings.first() {
            let text = format!("{}: {} [{}]", worst.severity, worst.cause, worst.id);
            (text + &more(reading.findings.len() - 1), worst.severity != "note")
        } else {
            ("no trouble, no finding is open".to_owned(), false)
        }
    } else {
        ("the daemon has just started; its first figures come in a second".to_owned(), false)
    };
    (escape::name(&text).into_owned(), bad)
}

fn footer(state: &State) -> String {
    if state.typing {
        return "type to filter; Enter keeps it, Esc then drops it".to_owned();
    }
    match state.over {
        Some(_) => "Esc back  j/k move",
        None if state.playback.is_some() => return playback::footer(state.pane),
        None if state.pane == Pane::Decisions => {
            "q quit  p pause  Tab 1-5 pane  / filter  j/k move  Enter explain  ? help"
        }
        None if !state.pane.orders().is_empty() => {
            "q quit  p pause  Tab 1-5 pane  s sort  / filter  j/k move  ? help"
        }
        None => "q quit  p pause  Tab 1-5 pane  / filter  j/k move  ? help",
    }
    .to_owned()
}

/// All panes beside each other.
fn all(frame: &mut Frame<'_>, area: Rect, state: &State, paint: Paint) {
    let [left, gap, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(2), Constraint::Fill(1)]).areas(area);
    let _ = gap;
    let tiers = body::body(state, Pane::Tiers);
    let needed = (tiers.intro.len() + tiers.rows.len() + 4) as u16;
    let [top, middle, bottom] = Layout::vertical([
        Constraint::Length(needed.min(left.height / 2)),
        Constraint::Fill(1),
        Constraint::Fill(1),
    ])
    .areas(left);
    let halves = Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(right);
    let [scopes, decisions] = halves;
    for (at, which) in [
        (top, Pane::Tiers),
        (scopes, Pane::Scopes),
        (middle, Pane::Sources),
        (bottom, Pane::Refusals),
        (decisions, Pane::Decisions),
    ] {
        pane(frame, at, state, which, paint);
    }
}

/// One pane: title, lines above the rows, heading, rows.
fn pane(frame: &mut Frame<'_>, area: Rect, state: &State, which: Pane, paint: Paint) {
    let body = body::body(state, which);
    let front = which == state.pane;
    put(frame, area, 0, &title(state, which, &body.note, area.width.into()), paint.title(front));
    let mut y = 1;
    for (text, bad) in &body.intro {
        let style = if *bad { paint.bad() } else { Style::new() };
        put(frame, area, y, &format!("{} {}", if *bad { '!' } else { ' ' }, escape::name(text)), style);
        y += 1;
    }
    if body.rows.is_empty() {
        for text in wrapped(&body.none, usize::from(area.width).saturating_sub(2)) {
            put(frame, area, y, &format!("  {text}"), Style::new());
            y += 1;
        }
        return;
    }
    if !body.intro.is_empty() {
        y += 1;
    }
    let fitted = fit(body.columns, usize::from(area.width).saturating_sub(2));
    let titles = line(body.columns, &fitted, |i| body.columns[i].title);
    put(frame, area, y, &format!("  {titles}"), Style::new().add_modifier(Modifier::UNDERLINED));
    y += 1;
    let room = usize::from(area.height.saturating_sub(y));
    let selected = state.place(which).row.min(body.rows.len() - 1);
    // The selected row is always in sight.
    let first = (selected + 1).saturating_sub(room);
    for (n, row) in body.rows.iter().enumerate().skip(first).take(room) {
        let cells = line(body.columns, &fitted, |i| row.cells.get(i).map_or("", String::as_str));
        let chosen = front && n == selected;
        let mark = if chosen { '>' } else { ' ' };
        let sign = if row.bad { '!' } else { ' ' };
        let style = if row.bad { paint.bad() } else { Style::new() };
        let style = if chosen { style.add_modifier(Modifier::REVERSED) } else { style };
        put(frame, area, y, &format!("{mark}{sign}{cells}"), style);
        y += 1;
    }
}

/// The title of a pane, in a rule: `=` if it is in front, `-` if not.
fn title(state: &State, which: Pane, note: &str, width: usize) -> String {
    let rule = if which == state.pane { "=" } else { "-" };
    let mut text = format!("{0}{0} {1} {2}", rule, which as usize + 1, which.title());
    if !note.is_empty() {
        text += &format!(": {note}");
    }
    if !which.orders().is_empty() {
        text += &format!(", by {}", state.order(which));
    }
    let text = text + " ";
    let left = width.saturating_sub(Span::raw(text.as_str()).width());
    text + &rule.repeat(left)
}
