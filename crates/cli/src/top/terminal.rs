//! The terminal, which is put back however the screen ends.

use std::io::{self, Stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use crossterm::cursor::Show;
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

/// Whether the terminal has to be put back.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while the screen has it; put back when dropped.
pub struct Screen {
    /// Draws on it.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal. A panic puts it back before its message is printed.
    ///
    /// # Errors
    /// It cannot be set up.
    pub fn take() -> anyhow::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            put_back();
            before(panic);
        }));
        TAKEN.store(true, Ordering::SeqCst);
        let taken = take();
        if taken.is_err() {
            put_back();
        }
        taken.context("the terminal cannot be set up for a screen; `thermocline top --once` prints one frame")
    }
}

fn take() -> io::Result<Screen> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)?;
    Ok(Screen { terminal: Terminal::new(CrosstermBackend::new(io::stdout()))? })
}

/// Puts the terminal back, once. Errors are ignored: if it is gone, nothing is left to put back.
fn put_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put_back();
    }
}
