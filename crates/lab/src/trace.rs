//! `bench --trace`: the engine's events in Chrome's trace event format, which browsers draw.

use crate::version::{COMMIT, VERSION};
use hypergrove::EngineBuilder;
use hypergrove::trace::Event;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events that are kept, the first ones: more would make a file that browsers draw slowly. The others are counted.
const MOST: usize = 1 << 18;

/// The events of an engine.
pub(crate) struct Recording {
    begin: Instant,
    /// The events, and the number of those that were left out.
    kept: Mutex<(Vec<Event>, u64)>,
}

/// Where events go, if that was asked for.
pub(crate) type Recorded<'r> = Option<&'r Arc<Recording>>;

impl Recording {
    pub(crate) fn new() -> Recording {
        Recording { begin: Instant::now(), kept: Mutex::default() }
    }

    fn add(&self, event: &Event) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.0.len() < MOST {
            true => kept.0.push(event.clone()),
            false => kept.1 += 1,
        }
    }

    /// The file, and how many events it has and lacks. The format has times in microseconds, and lines that name threads.
    pub(crate) fn file(&self) -> (String, usize, u64) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (events, left_out) = &*kept;
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1e3;
        let (mut numbers, mut lines) = (HashMap::new(), Vec::with_capacity(events.len()));
        for Event { step, thread, start, length, chunk, jobs } in events {
            let next = numbers.len() + 1;
            let tid = *numbers.entry(thread.id()).or_insert(next);
            if tid == next {
                let args = json!({ "name": thread.name().map_or_else(|| format!("thread {tid}"), String::from) });
                lines.push(json!({ "name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": args }).to_string());
            }
            let mut args = json!({ "jobs": jobs });
            chunk.iter().for_each(|chunk| args["chunk"] = json!(chunk));
            let (ts, dur) = (microseconds(start.saturating_duration_since(self.begin)), microseconds(*length));
            let name = step.name();
            let line = json!({ "name": name, "ph": "X", "ts": ts, "dur": dur, "pid": 1, "tid": tid, "args": args });
            lines.push(line.to_string());
        }
        let other = json!({ "version": VERSION, "commit": COMMIT, "left out": left_out });
        let (lines, count) = (lines.join(",\n"), events.len());
        let file = format!("{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[\n{lines}\n]}}\n");
        (file, count, *left_out)
    }
}

/// The builder of an engine whose events are recorded.
pub(crate) fn observed(builder: EngineBuilder, into: Recorded<'_>) -> EngineBuilder {
    match into.cloned() {
        Some(recording) => builder.observer(Arc::new(move |event| recording.add(event))),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hypergrove::trace::Step;
    use serde_json::Value;

    #[test]
    fn a_full_recording_counts_what_it_leaves_out() {
        let recording = Recording::new();
        let thread = std::thread::current();
        let event = Event {
            step: Step::Group,
            thread,
            start: recording.begin + Duration::from_micros(1500),
            length: Duration::from_nanos(2500),
            chunk: Some(7),
            jobs: 16,
        };
        (0..MOST + 3).for_each(|_| recording.add(&event));
        let (file, events, left_out) = recording.file();
        let parsed: Value = serde_json::from_str(&file).unwrap();
        assert_eq!((events, left_out, &parsed["otherData"]["left out"]), (MOST, 3, &3.into()));
        let lines = parsed["traceEvents"].as_array().unwrap();
        assert_eq!((lines.len(), &lines[0]["name"]), (MOST + 1, &"thread_name".into()));
        let args = json!({ "chunk": 7, "jobs": 16 });
        let expected =
            json!({ "name": "group", "ph": "X", "ts": 1500.0, "dur": 2.5, "pid": 1, "tid": 1, "args": args });
        assert_eq!(lines[1], expected);
    }
}
