//! Reports: the page as text, and as a browser shows it.

use crate::place::Place;
use serde_json::{Value, json};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A measurement, with fields that not every measurement has.
fn record(more: Value) -> Value {
    let mut record = json!({
        "scheme": "SLH-DSA", "set": "SLH-DSA-SHA2-128f", "op": "sign", "batch": 64, "backend": "cuda", "device": "A & B <GPU>",
        "detail": "driver \"1\"", "devices": ["cuda:0"], "threads": 4, "median_s": 0.01, "min_s": 0.009, "spread": 0.02, "runs": 3,
        "times_s": [0.009, 0.01, 0.011], "ops_per_s": 6400.0, "ideal_s": 0.008, "limit_fraction": 0.8, "verified": true,
        "cached_layers": 0, "message_bytes": 32, "redundant": false, "cores": 132, "commit": "0123456789ab", "version": "0.1.0",
    });
    let fields = record.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let (batch, median) = (fields["batch"].as_f64().unwrap(), fields["median_s"].as_f64().unwrap());
    fields.insert("times_s".into(), json!([0.99 * median, median, 1.01 * median]));
    fields.insert("ops_per_s".into(), json!(batch / median));
    record
}

/// Something of everything, each time `slower` times as long.
fn run(slower: f64) -> String {
    let mut records = Vec::new();
    let ops = ["keygen", "sign", "verify"];
    for op in ops {
        for batch in (1024..=8192).step_by(1024) {
            for (shape, rate) in [("tuned", 1e5), ("128×256", 6e4)] {
                let median = slower * (1e-3 + batch as f64 / rate);
                records.push(
                    json!({ "study": "throughput", "op": op, "batch": batch, "shape": shape, "median_s": median }),
                );
            }
        }
        for (device, least, each) in [("cpu:0", 1e-5, 1e-4), ("cuda:0", 1e-3, 1e-6)] {
            for batch in (0..10).map(|i| 1 << i) {
                let median = slower * (least + each * f64::from(batch));
                records.push(
                    json!({ "study": "crossover", "op": op, "batch": batch, "devices": [device], "median_s": median }),
                );
            }
        }
        for (i, shape) in ["0", "1", "1+2", "1+2+3", "1+2+3+4"].into_iter().enumerate() {
            let stage = json!({ "name": "chains", "blocks": 1 << i, "threads": 32, "launches": 1, "times_s": [1e-4, 1e-4, 1e-4] });
            let median = slower * 0.1f64.powi(i as i32);
            records.push(json!({ "study": "ladder", "op": op, "batch": 1, "shape": shape, "median_s": median, "stages": [stage] }));
        }
        for (blocks, threads) in [(66, 32), (132, 32), (132, 128), (528, 128), (1056, 256), (4224, 256)] {
            let stage = |name: &str, beta: f64, gamma: f64| {
                let t = f64::from(blocks * threads);
                let time = slower * (3e-6 + beta / t + gamma * t);
                json!({ "name": name, "blocks": blocks, "threads": threads, "launches": 1, "times_s": [time, time, time] })
            };
            let stages = [stage("chains", 20.0, 1e-9), stage("fors", 3.0, 2e-9), stage("wots_select", 0.1, 1e-12)];
            let shape = format!("block {threads}, blocks {blocks}");
            records.push(json!({ "study": "functions", "op": op, "shape": shape, "stages": stages }));
        }
        for number in [1, 2, 4] {
            let devices: Vec<String> = (0..number).map(|i| format!("cuda:{i}")).collect();
            records.push(json!({ "study": "multi-gpu", "op": op, "batch": 1000 * number, "devices": devices, "median_s": slower }));
        }
        for (rows, factor) in [(None, 3.0), (Some("host"), 2.0), (Some("device"), 1.25)] {
            for batch in [64, 1024] {
                records.push(json!({
                    "study": "host", "op": op, "batch": batch, "rows": rows, "kernels_per_s": 8000.0,
                    "median_s": slower * factor * f64::from(batch) / 8000.0
                }));
            }
        }
        records.push(
            json!({ "op": op, "kernels_per_s": 7000.0, "kernels_limit_fraction": 0.9, "median_s": slower * 0.01 }),
        );
    }
    for (way, rate) in [("a thread each", 1e4), ("without tickets", 1e3)] {
        for callers in [1, 16, 256] {
            let shape = format!("{callers} callers, {way}");
            records.push(json!({
                "study": "callers", "op": "sign", "batch": callers, "callers": callers, "batched": 8.0, "shape": shape, "ops_per_s": rate,
                "median_s": slower * 1e-4 * f64::from(callers), "p99_s": slower * 2e-4 * f64::from(callers), "p999_s": 1.0,
            }));
        }
    }
    for threads in [1, 2, 4] {
        let of = |shape: &str, more: Value| {
            let shape = format!("{threads} {shape}");
            let mut record = json!({ "study": "cores", "op": "verify", "batch": 100 * threads, "threads": threads });
            record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            (record["shape"], record["median_s"]) = (shape.into(), (slower * 0.01).into());
            record
        };
        records.push(of("threads", json!({ "process_fraction": (threads > 1).then_some(0.875) })));
        records.extend((threads > 1).then(|| of("processes", json!({ "processes": threads }))));
    }
    for layers in 0..4 {
        let more = json!({ "study": "cache-depth", "cached_layers": layers, "cache_bytes": 240 << (3 * layers), "build_s": 0.1 });
        records.push(more);
    }
    records.push(json!({ "study": "limits", "op": "rates", "set": "", "shape": "avx2", "rates": { "sha256": 5e7, "sha512": 1e7, "keccak": 1e7 } }));
    records.into_iter().map(|more| record(more).to_string() + "\n").collect()
}

const BROKEN: &str = concat!(
    "{\"broken\n",
    "{\"study\": \"ladder\", \"skipped\": \"there is no GPU\"}\n",
    "{\"set\": \"X\", \"op\": \"sign\", \"batch\": 1, \"median_s\": 1, \"ops_per_s\": 1, \"verified\": false}\n",
);

fn page(place: &Place) -> String {
    fs::create_dir(place.path("first")).unwrap();
    place.write("first/studies.jsonl", run(1.0) + BROKEN);
    place.write("first/setup.md", "One <b>machine</b> & \"more\": <script>throw 1</script>\n");
    place.write("second.jsonl", run(0.5));
    place.run(&["report", "first", "second.jsonl", "-o", "page.html", "--svg", "pictures"]).good();
    String::from_utf8(place.read("page.html")).unwrap()
}

/// Checks that every element ends where it should; gives the names of all, and what their attributes say.
fn elements(markup: &str) -> Vec<(String, String)> {
    const VOID: &[&str] = &["meta", "link", "br", "hr", "img", "input"];
    let (mut open, mut all, mut rest) = (Vec::<String>::new(), Vec::new(), markup);
    while let Some(at) = rest.find('<') {
        let end = at + rest[at..].find('>').expect("a tag that ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') || tag.starts_with('?') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "before: {}", &rest[..rest.len().min(80)]);
            continue;
        }
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        all.push((name.to_string(), attributes.to_string()));
        if VOID.contains(&name) || tag.ends_with('/') {
            continue;
        }
        open.push(name.into());
        if name == "script" || name == "style" {
            rest = &rest[rest.find(&format!("</{name}>")).expect("raw text that ends")..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
    all
}

#[test]
fn the_page_is_whole_and_needs_nothing_else() {
    let place = Place::new();
    let page = page(&place);
    let elements = elements(&page);
    let count = |name: &str| elements.iter().filter(|(other, _)| other == name).count();
    assert_eq!((count("script"), count("main"), count("h1")), (1, 1, 1), "text is escaped");
    assert!(page.contains("&lt;script&gt;throw 1&lt;/script&gt;") && page.contains("A &amp; B &lt;GPU&gt;"));
    // Nothing is fetched: the only address is the name of SVG.
    assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    assert!(!page.contains("@import") && !page.contains("url("));
    for (name, attributes) in &elements {
        let outside = attributes.contains("src=") || name == "iframe" || name == "object";
        assert!(!outside && (name != "link" || attributes.contains("href=\"data:,\"")), "{name} {attributes}");
    }
    // It is as wide as its window: no rule fixes a width, drawings scale, and tables scroll by themselves. A browser sees the rest.
    assert!(page.contains("content=\"width=device-width, initial-scale=1\""));
    let styles: Vec<&str> = page.split("<style>").skip(1).filter_map(|rest| rest.split("</style>").next()).collect();
    for rule in styles.iter().flat_map(|style| style.split(['{', ';', '}', ' '])) {
        assert!(!rule.starts_with("width:") || ["width:100%", "width:fit-content"].contains(&rule), "{rule}");
    }
    for (name, attributes) in &elements {
        let is_fixed = attributes.split_once("style=\"").is_some_and(|(_, style)| style.contains("px"));
        assert!(!is_fixed && (name != "svg" || attributes.contains("viewBox=\"0 0 ")), "{name} {attributes}");
    }
    assert_eq!(page.matches("<table").count(), page.matches("<div class=\"table\"").count());
    // The target of each link is there, once.
    for (_, attributes) in elements.iter().filter(|(name, _)| name == "a") {
        let anchor = attributes.split("href=\"#").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(page.matches(&format!("id=\"{anchor}\"")).count(), 1, "{anchor}");
    }
    for id in [
        "throughput",
        "crossover",
        "ladder",
        "functions",
        "roofline",
        "cache-depth",
        "multi-gpu",
        "host",
        "callers",
        "cores",
    ] {
        assert!(page.contains(&format!("id=\"r1-{id}\"")) && page.contains(&format!("id=\"r2-{id}\"")), "{id}");
    }
    for words in [
        "second compared with first",
        "2.00×",
        "t* ",
        "2 lines are no record",
        "there is no GPU",
        "100 %",
        "device-reachable",
        "99 % wait",
        "engine / processes",
        "87.5 %",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // Words of a table are not broken: it scrolls.
    let cells = page.split("th,td{").nth(1).unwrap().split('}').next().unwrap();
    assert!(!cells.contains("anywhere") && !cells.contains("break"), "{cells}");
    let broken = format!("studies.jsonl, line {}: EOF", run(1.0).lines().count() + 1);
    assert!(page.contains(&broken), "{broken}");
    assert!(!page.contains("NaN") && !page.contains("inf\""));

    let pictures: Vec<_> = fs::read_dir(place.path("pictures")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(pictures.len(), page.matches("<figure").count());
    for path in pictures {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("<?xml") && text.contains("<style>"), "{}", path.display());
        assert!(self::elements(&text).iter().any(|(name, _)| name == "text"));
    }
}

#[test]
fn reports_are_written_whole_or_not_at_all() {
    let place = Place::new();
    place.write("run.jsonl", run(1.0));
    place.write("bad.jsonl", BROKEN);
    let page = place.run(&["report", "run.jsonl"]).good();
    assert!(page.text().starts_with("<!DOCTYPE html>") && page.text().trim_end().ends_with("</html>"));
    place.write("page.html", "mine");
    place.run(&["report", "run.jsonl", "-o", "page.html"]).refuses(&["page.html exists", "--force"]);
    assert_eq!(place.read("page.html"), b"mine");
    place.run(&["report", "run.jsonl", "-o", "run.jsonl", "--force"]).refuses(&["run.jsonl would be replaced"]);
    place.run(&["report", "run.jsonl", "-o", "page.html", "--force"]).good();
    place.run(&["report", "bad.jsonl"]).refuses(&["bad.jsonl has no record", "bad.jsonl, line 1"]);
    place.run(&["report", "nothing"]).refuses(&["nothing", "no such file"]);
    place.run(&["report"]).refuses(&["RUN"]);
    assert_eq!(place.names(), ["bad.jsonl", "page.html", "run.jsonl"]);
    // The records of this repository.
    let runs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/runs/2026-11-21-h200");
    assert!(place.run(&["report", runs]).good().text().contains("Shares of the peak rate"));
}

/// Numbers at the ends of what a file can hold: left out, and nothing hangs.
#[test]
fn numbers_that_no_machine_has_are_left_out() {
    let place = Place::new();
    let fields = ["median_s", "ops_per_s", "limit_fraction", "kernels_per_s", "spread"];
    for extreme in ["1.7e308", "5e-324", "-1.0"] {
        let mut lines: Vec<String> = fields
            .iter()
            .map(|field| {
                let mut record = record(json!({ "study": "throughput", "median_s": 0.01 }));
                record[field] = json!("HERE");
                record.to_string().replace("\"HERE\"", extreme)
            })
            .collect();
        let times = record(json!({ "study": "throughput", "median_s": 0.01, })).to_string();
        lines.push(times.replace("\"times_s\":[", &format!("\"times_s\":[{extreme},")));
        lines.push(record(json!({ "study": "throughput", "median_s": 0.01 })).to_string());
        place.write("run.jsonl", lines.join("\n"));
        let run = place.run_for(20, &["report", "run.jsonl", "-o", "page.html", "--force"]).good();
        for (i, field) in fields.iter().chain(["times_s"].iter()).enumerate() {
            let words = format!("left out: run.jsonl, line {}: `{field}` is missing or makes no sense", i + 1);
            assert!(run.stderr.contains(&words), "{extreme}: {words} is not in {}", run.stderr);
        }
        let page = String::from_utf8(place.read("page.html")).unwrap();
        assert!(page.contains("6,400") && !page.contains("NaN") && !page.contains("inf\""), "{extreme}");
    }
    // Large numbers that are not left out fit on an axis.
    for median in [1e-29, 1e29] {
        let of = |batch: u64| record(json!({ "study": "crossover", "median_s": median, "batch": batch })).to_string();
        place.write("run.jsonl", [of(1), of(1 << 40), of(u64::MAX)].join("\n"));
        place.run_for(20, &["report", "run.jsonl", "-o", "page.html", "--force"]).good();
        let page = String::from_utf8(place.read("page.html")).unwrap();
        assert!(!page.contains("NaN") && !page.contains("inf\""), "{median}");
    }
}

/// A run of this repository.
fn recorded(name: &str) -> String {
    format!("{}/../../bench/runs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The text of the headline's tiles, without tags.
fn headline(page: &str) -> Vec<String> {
    let sections = page.split("<section class=\"headline\"").skip(1).filter_map(|rest| rest.split("</section>").next());
    let text = sections.collect::<String>();
    let words = text.split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
    words.filter(|text| !text.is_empty()).map(String::from).collect()
}

/// The chart of shares takes what the headline takes: rows too, so that all operations are in it.
#[test]
fn the_headline_and_the_chart_tell_one_story() {
    let place = Place::new();
    let run = place.run(&["report", &recorded("2026-11-24-h200")]).good();
    let (page, words) = (run.text(), headline(run.text()));
    assert_eq!(words[0], "NVIDIA H200", "trials have no name of their own: {words:?}");
    assert!(
        words.iter().filter(|word| *word == "NVIDIA H200").count() == 1 && !page.contains("<h2><span>"),
        "{words:?}"
    );
    for share in ["88 %", "80 %", "97 %"] {
        assert!(words.contains(&format!("{share} of peak")), "{share}: {words:?}");
    }
    assert!(words.contains(&"batches of 262,144 by rows, device-reachable memory".into()), "{words:?}");
    let chart = page.split("id=\"roofline\"").nth(1).unwrap();
    assert!(chart.contains("SHA2-128f: sign 88 %, verify 80 %, keygen 97 %"), "{chart}");
    for words in
        ["sign 86 %", "zkDilithium: sign 37 %, verify 41 %, keygen 47 %", "an iterator", "rows, ordinary memory"]
    {
        assert!(chart.contains(words), "{words}");
    }
    // Notes have code.
    assert!(page.contains("<code>raw.jsonl</code>: rows of both schemes"));
    let about = page.split("<section class=\"runs\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(!about.contains('`'), "{about}");
}

/// Two headlines are compared as they stand, pairs only by one way of the jobs; the page states both rules.
#[test]
fn headlines_are_compared_by_a_rule_that_is_stated() {
    let place = Place::new();
    let run = place.run(&["report", &recorded("2026-11-21-h200"), &recorded("2026-11-24-h200")]).good();
    let words = headline(run.text());
    let times = |text: &str| words.iter().filter(|word| *word == text).count();
    assert_eq!((times("NVIDIA H200"), times("1.31×")), (2, 0), "{words:?}");
    assert_eq!(times("1.31× the headline of 2026-11-21-h200"), 1, "{words:?}");
    assert!(words.iter().filter(|word| word.contains(": SHA2-128f (2026-11-2")).count() == 2, "{words:?}");
    for rule in [
        "in whatever way the jobs came",
        "whatever the way of their jobs",
        "Only measurements of one kind are compared",
    ] {
        assert!(run.text().contains(rule), "{rule}");
    }
    let pairs = run.text().split("id=\"c1-compared\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(pairs.contains("SHA2-128f verify: ") && pairs.contains("1.07×") && !pairs.contains("trial"), "{pairs}");
    assert!(!headline(place.run(&["report", &recorded("2026-11-21-h200")]).good().text()).concat().contains('×'));
}

/// Curves of two devices are not one curve.
#[test]
fn callers_of_each_device_have_their_own_picture() {
    let place = Place::new();
    let callers = |device: &str| {
        let shape = "16 callers, without tickets";
        record(json!({ "study": "callers", "device": device, "callers": 16, "shape": shape })).to_string() + "\n"
    };
    place.write("run.jsonl", callers("A CPU") + &callers("a GPU"));
    place.run(&["report", "run.jsonl", "-o", "page.html", "--svg", "pictures"]).good();
    let mut names: Vec<_> = fs::read_dir(place.path("pictures"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names.retain(|name| name.ends_with("-rate.svg"));
    let of = |device: &str| format!("callers-{device}-slh-dsa-sha2-128f-sign-rate.svg");
    assert_eq!(names, ["a-cpu", "a-gpu"].map(of));
}

/// A rate of few jobs, of a part of a batch or of many callers is no headline, nor is that of a trial where there is a benchmark.
#[test]
fn a_small_batch_is_no_headline() {
    let place = Place::new();
    let study = |name: &str, batch: u64, rate: f64| {
        record(json!({ "study": name, "batch": batch, "median_s": batch as f64 / rate })).to_string() + "\n"
    };
    let page = |lines: &[String]| {
        place.write("run.jsonl", lines.concat());
        headline(place.run(&["report", "run.jsonl"]).good().text())
    };
    let few = [study("crossover", 8, 9000.0), study("functions", 64, 9500.0), study("callers", 4096, 9900.0)];
    let words = page(&[&few[..], &[study("crossover", 8192, 8000.0)]].concat());
    assert!(words.contains(&"8,000".into()) && words.contains(&"batches of 8,192 by an iterator".into()), "{words:?}");
    let words = page(&[study("functions", 64, 9500.0), study("ladder", 1, 1000.0)]);
    assert!(words.contains(&"signatures, one alone".into()) && !words.concat().contains("batches"), "{words:?}");
    let trial = |more: Value| {
        let mut trial = record(json!({ "trial": "1/base", "batch": 1024, "median_s": 0.1 }));
        trial.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let fields = ["device", "backend", "detail", "limit_fraction"];
        trial.as_object_mut().unwrap().retain(|field, _| !fields.contains(&&field[..]));
        trial.to_string() + "\n"
    };
    // The name is that of the same device in other records; without any it is the device's number.
    let words = page(&[study("host", 4096, 7000.0), trial(json!({}))]);
    assert!(words[0] == "A &amp; B &lt;GPU&gt;" && words.contains(&"7,000".into()), "{words:?}");
    let words = page(&[trial(json!({}))]);
    assert!(words[..2] == ["cuda:0", ": SHA2-128f"] && words.contains(&"10,240".into()), "{words:?}");
    assert_eq!(page(&[trial(json!({ "devices": [] }))])[0], "a device without a name");
}

/// The actions of a person: every stop of the Tab key, the arrows on a figure, the button. The script also finds anything that sticks out.
const PROBE: &str = r#"
<script>
window.addEventListener('load', () => {
  const failures = [...window.failures], root = document.documentElement, button = document.getElementById('theme');
  if (root.scrollWidth > root.clientWidth) {
    const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !e.closest('.table'));
    failures.push('wider than ' + root.clientWidth + ': ' + root.scrollWidth + ' ' + wide.slice(0, 3).map(e => e.outerHTML.slice(0, 120)));
  }
  for (const part of document.querySelectorAll('details')) part.open = true;
  if (root.scrollWidth > root.clientWidth) failures.push('wider when unfolded: ' + root.scrollWidth);
  const stops = [...document.querySelectorAll('a, button, summary, figure, .table')];
  for (const stop of stops) {
    stop.focus();
    if (document.activeElement !== stop) failures.push('no focus: ' + stop.outerHTML.slice(0, 80));
  }
  const figures = [...document.querySelectorAll('figure')];
  for (const figure of figures) {
    figure.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true, cancelable: true }));
    if (!figure.querySelector('figcaption').textContent) failures.push('silent: ' + figure.outerHTML.slice(0, 80));
    const picture = [...figure.querySelectorAll('svg')].find(svg => svg.getClientRects().length), box = picture.getBoundingClientRect();
    if (box.width < 0.97 * figure.getBoundingClientRect().width) failures.push('narrow: ' + box.width);
    for (const text of picture.querySelectorAll('text')) {
      const { left, right, top, bottom } = text.getBoundingClientRect();
      if (left < box.left - 1 || right > box.right + 1 || top < box.top - 1 || bottom > box.bottom + 1) failures.push('clipped: ' + text.textContent);
    }
    const labels = [...picture.querySelectorAll('.tick, .axis, .title, .legend text')].map(text => [text.textContent, text.getBoundingClientRect()]);
    labels.forEach(([a, one], i) => labels.slice(i + 1).forEach(([b, two]) => {
      const across = Math.min(one.right, two.right) - Math.max(one.left, two.left);
      const down = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
      if (across > 1 && down > 4) failures.push('overlap: ' + a + ' and ' + b);
    }));
  }
  if (window.innerWidth > 700) for (const cell of document.querySelectorAll('th, td')) {
    for (const word of cell.textContent.matchAll(/[^\s-]+/g)) {
      const range = document.createRange();
      range.setStart(cell.firstChild, word.index);
      range.setEnd(cell.firstChild, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map(line => Math.round(line.top)));
      if (tops.size > 1) failures.push('broken: ' + word[0]);
    }
  }
  const colours = [];
  for (let i = 0; i < 3; i++) { button.click(); colours.push(root.dataset.theme + getComputedStyle(document.body).backgroundColor); }
  if (new Set(colours).size !== 3 || colours[2].indexOf('undefined') !== 0) failures.push('themes: ' + colours);
  const seen = { width: window.innerWidth, stops: stops.length, figures: figures.length, failures: [...new Set(failures)].slice(0, 20) };
  parent.postMessage(JSON.stringify(seen), '*');
});
</script>"#;

const LISTEN: &str = r#"<script>
window.failures = [];
window.addEventListener('error', event => window.failures.push('error: ' + event.message));
console.error = text => window.failures.push('console: ' + text);
</script>"#;

/// A frame may be narrower than any window.
const FRAME: &str = r#"<!DOCTYPE html><title>frame</title><body><iframe style="width:WIDTHpx;height:900px;border:0" src="probed.html"></iframe>
<script>
window.addEventListener('message', event => {
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = event.data;
  document.body.append(result);
});
</script>"#;

/// Waits a minute at most.
fn finished(command: &mut Command) -> Option<String> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn().ok()?;
    let mut pipe = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut pipe, &mut text).map(|_| text)
    });
    let start = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().ok()?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    reader.join().ok()?.ok()
}

#[test]
fn a_browser_shows_the_page_without_a_fault() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let there =
        |name: &&str| Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let Some(browser) = browsers.into_iter().find(|name| there(name)) else {
        return println!("skipped: the report in a browser: no Chromium is installed");
    };
    let place = Place::new();
    let page = page(&place);
    let page =
        page.replacen("<head>", &format!("<head>{LISTEN}"), 1).replacen("</body>", &format!("{PROBE}</body>"), 1);
    place.write("probed.html", page);
    let address = format!("file://{}", place.path("frame.html").display());
    for (width, dark) in [(400, false), (1200, false), (1200, true), (2000, true)] {
        place.write("frame.html", FRAME.replace("WIDTH", &width.to_string()));
        let mut command = Command::new(browser);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", place.path("profile").display()));
        command.arg("--window-size=2100,1000");
        command.arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark))).arg(&address);
        let shown = finished(&mut command).expect("a browser that ends");
        let result = shown.split("<pre id=\"result\">").nth(1).expect("the probe ran").split("</pre>").next().unwrap();
        let result = result.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(result["failures"], json!([]), "{width} pixels, dark: {dark}");
        assert_eq!(result["width"], width);
        assert!(result["figures"].as_u64().unwrap() > 40 && result["stops"].as_u64().unwrap() > 80, "{result}");
    }
}
