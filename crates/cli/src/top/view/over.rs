//! What lies over the panes: the keys, and explanations.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::put;
use super::table::wrapped;
use crate::escape;
use crate::top::state::Over;

/// The keys.
const HELP: &str = "\
keys
  q, Ctrl-C        quit
  p                pause the screen, or go on
  1 .. 5           go to a pane
  Tab, Shift-Tab   the next pane, the one before
  s                the next order of rows: scopes, refusals
  /                filter scopes, sources, refusals, decisions
  Esc              drop the filter; close this
  j, k, arrows     move; PageUp, PageDown, Home, End
  Enter            explain the selected decision's page

signs
  >  the selected row        !  something is wrong
  -  not known, or none      ~  cut off";

/// The keys on a recording.
const TIME_HELP: &str = "\
time
  Space, p         play, or stand still
  +, -             twice as fast, half as fast: x1 to x256
  l, h             a second on, back; so do Right, Left
  L, H             ten seconds on, back; so do Shift-Right, Shift-Left
  g, G             to the start, to the end

keys
  q, Ctrl-C        quit
  1 .. 5           go to a pane; Tab, Shift-Tab: the next, the one before
  s                the next order of rows: scopes, refusals
  /                filter scopes, sources, refusals, decisions
  Esc              drop the filter; close this
  j, k, up, down   move; PageUp, PageDown, Home, End
  Enter            explain the selected decision's page as at this moment

signs
  >  the selected row        !  something is wrong
  -  not known, or none      ~  cut off";

/// Draws it.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, over: &Over, recorded: bool) {
    let (text, first) = match over {
        Over::Help if recorded => (TIME_HELP, 0),
        Over::Help => (HELP, 0),
        Over::Explained(text, first) => (text.as_str(), *first),
    };
    let width = usize::from(area.width);
    let lines: Vec<String> = text
        .lines()
        .skip(first)
        .flat_map(|line| match over {
            Over::Help => vec![line.to_owned()],
            Over::Explained(..) => wrapped(&escape::name(line), width),
        })
        .collect();
    for (y, line) in lines.iter().enumerate().take(area.height.into()) {
        put(frame, area, y as u16, line, Style::new());
    }
}
