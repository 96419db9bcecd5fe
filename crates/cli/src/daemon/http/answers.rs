//! The responses.

use std::sync::Arc;

use thermocline_wire::http::{Asked, Page, Request, Status, head};

use crate::daemon::pulse::Pulse;
use crate::metrics::{Format, families, loop_late};
use crate::snapshot::{Latest, Snapshot};

/// Content type of everything but metrics.
const PLAIN: &str = "text/plain; charset=utf-8";
const OK: Status = (200, "OK");
const UNAVAILABLE: Status = (503, "Service Unavailable");

/// What responses are made from.
#[derive(Debug)]
pub struct Answers {
    latest: Latest,
    pulse: Arc<Pulse>,
    /// The newest snapshot's text in each format.
    rendered: Vec<Rendered>,
}

#[derive(Debug)]
struct Rendered {
    format: Format,
    of: Arc<Snapshot>,
    text: Arc<str>,
}

/// A response: what is its own, and the metrics that it shares with others.
#[derive(Debug)]
pub struct Response {
    /// The head.
    pub head: String,
    /// Metrics of a snapshot.
    pub metrics: Option<Arc<str>>,
    /// What follows, or the whole body.
    pub rest: String,
}

impl Answers {
    /// Answers from the newest snapshot; `pulse` shows whether the loop runs.
    pub fn new(latest: Latest, pulse: Arc<Pulse>) -> Answers {
        Answers { latest, pulse, rendered: Vec::new() }
    }

    /// The response to a request.
    pub fn to(&mut self, asked: &Asked) -> Response {
        let late = self.pulse.late();
        let (status, content_type, metrics, rest) = match asked {
            Err(status) => (*status, PLAIN, None, format!("{}\n", status.1)),
            Ok(Request { page: Page::Index, .. }) => {
                (OK, PLAIN, None, "thermocline serves /metrics and /-/healthy\n".to_owned())
            }
            Ok(Request { page: Page::Health, .. }) => match late {
                None => (OK, PLAIN, None, "healthy\n".to_owned()),
                Some(late) => {
                    let body = format!("the loop has not turned for {:.1} s\n", late.as_secs_f64());
                    (UNAVAILABLE, PLAIN, None, body)
                }
            },
            Ok(Request { page: Page::Metrics { open_metrics }, .. }) => {
                let format = if *open_metrics { Format::OpenMetrics } else { Format::Prometheus };
                match self.text(format) {
                    None => {
                        let body = "the daemon has just started; ask again in a second\n".to_owned();
                        (UNAVAILABLE, PLAIN, None, body)
                    }
                    Some(text) => {
                        let rest = format.text(&[loop_late(late)]) + format.end();
                        (OK, format.content_type(), Some(text), rest)
                    }
                }
            }
        };
        let length = metrics.as_ref().map_or(0, |text| text.len()) + rest.len();
        let head = head(status, content_type, length, asked.is_ok_and(|asked| asked.persists));
        if asked.is_ok_and(|asked| asked.head) {
            return Response { head, metrics: None, rest: String::new() };
        }
        Response { head, metrics, rest }
    }

    /// The newest snapshot's text; `None` before the first snapshot.
    fn text(&mut self, format: Format) -> Option<Arc<str>> {
        let snapshot = self.latest.get()?;
        self.rendered.retain(|one| Arc::ptr_eq(&one.of, &snapshot));
        if let Some(found) = self.rendered.iter().find(|one| one.format == format) {
            return Some(Arc::clone(&found.text));
        }
        let text: Arc<str> = format.text(&families(&snapshot)).into();
        self.rendered.push(Rendered { format, of: snapshot, text: Arc::clone(&text) });
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_rendered_once_for_each_format() {
        let latest = Latest::default();
        let mut answers = Answers::new(latest.clone(), Arc::default());
        let mut text = |open_metrics| {
            let page = Page::Metrics { open_metrics };
            answers.to(&Ok(Request { page, head: false, persists: true })).metrics
        };
        assert!(text(false).is_none(), "before the first snapshot");
        latest.publish(Snapshot::for_tests());
        let [plain, open] = [false, true].map(|format| text(format).unwrap());
        assert!(!Arc::ptr_eq(&plain, &open));
        for _ in 0..10 {
            assert!(Arc::ptr_eq(&plain, &text(false).unwrap()) && Arc::ptr_eq(&open, &text(true).unwrap()));
        }
        latest.publish(Snapshot::for_tests());
        assert!(!Arc::ptr_eq(&plain, &text(false).unwrap()), "a newer snapshot has its own text");
    }
}
