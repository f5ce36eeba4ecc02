//! One frame.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};
use seriatim::store::{NodeView, PeriodicView};

use super::detail::Detail;
use super::sample::{Sample, Shown, Why};
use super::state::{Pane, State};
use crate::app::figures::Figures;
use crate::app::nodes::{busy, is_late, periodic_state};
use crate::app::reported::Reported;
use crate::app::troubles;
use crate::base::text::{columns, count, cut_middle, failures, one_line};
use crate::base::time::{length, relative};
use crate::cli::nodes;
use crate::cli::output::table::Tone;
use crate::cli::tones::{lane_state, node_state};

/// Least width of the column of node ids, which takes at most two fifths of the screen, a quarter of a narrow one.
const NODE_COLUMNS_MIN: usize = 8;
/// Most rows of nodes.
const NODES_MAX: usize = 4;
/// Most rows of periodic workers; those with most failures come first.
const PERIODIC_MAX: usize = 4;
/// Narrower screens leave out some columns, to keep room for names.
const WIDE: u16 = 80;
const HELP: &str =
    "q quit  ? keys  Tab list  \u{2191}\u{2193} choose  Enter look  / filter  p pause  r run now";
const HELP_NARROW: &str = "q quit  ? keys  Tab list  Enter look  p pause  r run now";
const HELP_IN_FULL: &str =
    "Esc back  ? keys  \u{2191}\u{2193} scroll  p pause  r run now  m requeue";
/// Lines of at most 60 columns.
const KEYS: &str = "\
Tab      the other list: queues, lanes
\u{2191} \u{2193} k j  choose a row; in the details: scroll
Enter    the queue or lane in full; again or Esc: back
/        only rows that contain a text; Enter keeps it
Esc      remove the text; without one: quit
p        pause the queue or lane; resume it
r        make all of the queue, or the lane, due now
m        requeue the dead jobs of the queue
?        these keys
q        quit

Any key closes this.";

pub(super) fn draw(frame: &mut Frame, state: &mut State) {
    let nodes = state.sample.as_ref().map_or(0, |sample| sample.nodes.len()).clamp(1, NODES_MAX);
    let programs = state.sample.as_ref().map(Sample::periodic).unwrap_or_default();
    let rows = match programs.len().min(PERIODIC_MAX) as u16 {
        0 => 0,
        rows => rows + 2,
    };
    let [head, queues, lanes, periodic, node, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(rows),
        Constraint::Length(nodes as u16 + 2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let styles = Styles { colour: state.colour };
    if state.shows_keys {
        frame.render_widget(Paragraph::new(KEYS).block(titled(" keys ")), frame.area());
        return;
    }
    if let Some(sample) = &state.sample {
        frame.render_widget(Paragraph::new(headline(&state.store, sample, head.width)), head);
    }
    match (&state.detail, &state.sample) {
        (Some(detail), _) => draw_detail(frame, queues.union(lanes).union(node), detail),
        (None, None) => frame.render_widget(Paragraph::new("looking at the store …"), queues),
        (None, Some(sample)) => {
            draw_queues(frame, queues, state, sample, styles);
            draw_lanes(frame, lanes, state, sample, styles);
            draw_periodic(frame, periodic, &programs, styles);
            draw_nodes(frame, node, sample, styles);
        }
    }
    frame.render_widget(Paragraph::new(last_line(state, foot.width)).style(bold()), foot);
}

fn last_line(state: &State, width: u16) -> String {
    let help = match &state.detail {
        Some(_) => HELP_IN_FULL,
        None if width < WIDE => HELP_NARROW,
        None => HELP,
    };
    match (&state.asked, &state.said) {
        (Some(action), _) => format!("{} y / n", action.question()),
        _ if state.filter.is_typed => {
            format!("/{}\u{2581}   Enter keep  Esc remove", one_line(state.filter.text()))
        }
        (None, Some(said)) => format!("{}   {help}", one_line(said)),
        (None, None) => help.to_owned(),
    }
}

/// Lines that are too long go on below.
fn draw_detail(frame: &mut Frame, area: Rect, detail: &Detail) {
    let lines = detail.text().lines().skip(detail.above).map(|line| Line::from(one_line(line)));
    let text = Paragraph::new(lines.collect::<Vec<_>>()).wrap(Wrap { trim: false });
    frame.render_widget(text.block(titled(detail.target.title())), area);
}

/// Styles that respect `NO_COLOR`.
#[derive(Clone, Copy)]
struct Styles {
    colour: bool,
}

impl Styles {
    fn tone(self, tone: Tone) -> Style {
        match tone {
            _ if !self.colour => Style::new(),
            Tone::Plain => Style::new(),
            Tone::Warn => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red),
            Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        }
    }

    fn cell(self, text: impl AsRef<str>, tone: Tone) -> Cell<'static> {
        Cell::new(one_line(text.as_ref())).style(self.tone(tone))
    }

    /// A number at the right edge.
    fn number(self, text: impl Into<String>, tone: Tone) -> Cell<'static> {
        Cell::new(Line::from(text.into()).right_aligned()).style(self.tone(tone))
    }

    fn count(self, number: u64, tone: Tone) -> Cell<'static> {
        self.number(number.to_string(), if number == 0 { Tone::Faint } else { tone })
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// The cells of a row that fit.
fn fitting<T>(cells: impl IntoIterator<Item = T>, is_wide: bool, narrow: &[usize]) -> Vec<T> {
    let cells = cells.into_iter().enumerate();
    cells.filter(|(at, _)| is_wide || narrow.contains(at)).map(|(_, cell)| cell).collect()
}

/// The chosen row of the focused list.
fn chosen(is_for_keys: bool) -> Style {
    if is_for_keys { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

/// What matters, and beside it what fits: the name, turns that are prefetched, the store.
fn headline(store: &str, sample: &Sample, width: u16) -> String {
    let sum = |of: fn(&Figures) -> u64| sample.queues.iter().map(of).sum::<u64>();
    let late = sample.nodes.iter().filter(|node| is_late(node, sample.now)).count();
    let late = if late > 0 { format!(" ({late} lost)") } else { String::new() };
    let (nodes, dead) = (sample.nodes.len() as u64, sum(|of| of.stats.dead));
    let figures = |prefetched: &str| {
        format!(
            "{}, {}, {} running{prefetched}, {dead} dead, {}{late}",
            count(sample.queues.len() as u64, "queue"),
            count(sum(|of| of.stats.jobs), "job"),
            sum(Figures::running),
            count(nodes, "node"),
        )
    };
    let (most, least) =
        (figures(&format!(", {} prefetched", sum(|of| of.prefetched))), figures(""));
    let lines = [format!("seriatim top  {most}"), format!("seriatim top  {least}")];
    let fits = lines.into_iter().find(|line| columns(line) <= usize::from(width));
    format!("{}  {}", fits.unwrap_or(least), one_line(store))
}

fn titled(title: impl Into<String>) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(title.into())
}

/// A title with the filter, and how many of all rows the area shows at once, if not all.
fn filtered(what: &str, rows: usize, area: Rect, state: &State) -> String {
    // Title and head are no rows.
    let room = usize::from(area.height.saturating_sub(2));
    let some = if rows > room { format!(" ({room} of {rows})") } else { String::new() };
    match state.filter.text() {
        "" => format!(" {what}{some} "),
        text => format!(" {what}: /{}{some} ", one_line(text)),
    }
}

fn draw_queues(frame: &mut Frame, area: Rect, state: &State, sample: &Sample, styles: Styles) {
    let (is_wide, narrow) = (area.width >= WIDE, [0, 1, 2, 3, 4, 5, 6]);
    let rows = state.queues().map(|of| {
        let rates = state.before.as_ref().and_then(|before| sample.rates(before, &of.stats));
        let troubles = troubles::of(&sample.nodes, sample.now);
        let mut queues = troubles.filter_map(|(_, trouble)| trouble.queue.as_deref());
        let is_troubled = queues.any(|name| name == &*of.stats.queue);
        Row::new(fitting(queue_row(of, is_troubled, rates, styles), is_wide, &narrow))
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(if is_wide { 7 } else { 5 }),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(if is_wide { 6 } else { 4 }),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
    ];
    let head = ["jobs", "running", "retrying", "dead", "lag", "done/s", "fail/s"];
    let head = head.map(|name| styles.number(name, Tone::Faint));
    let names = ["queue", "state"].map(|name| styles.cell(name, Tone::Faint));
    let table = Table::new(rows, fitting(widths, is_wide, &narrow))
        .header(Row::new(fitting(names.into_iter().chain(head), is_wide, &narrow)))
        .block(titled(filtered("queues", state.queues().count(), area, state)))
        .row_highlight_style(chosen(state.pane == Pane::Queues));
    let mut chosen = TableState::new().with_selected(state.queue_row());
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn queue_row(
    of: &Figures,
    is_troubled: bool,
    rates: Option<(f64, f64)>,
    styles: Styles,
) -> [Cell<'static>; 9] {
    let queue = &of.stats;
    let (state, tone) = match (is_troubled, queue.paused) {
        // What it is stands with its node below.
        (true, _) => ("trouble", Tone::Bad),
        (false, true) => ("paused", Tone::Warn),
        (false, false) => ("open", Tone::Plain),
    };
    let rate = |rate: Option<f64>, tone| match rate {
        None => styles.number("-", Tone::Faint),
        Some(rate) if rate > 0.0 => styles.number(format!("{rate:.1}"), tone),
        Some(_) => styles.number("0", Tone::Faint),
    };
    [
        styles.cell(&queue.queue, Tone::Plain),
        styles.cell(state, tone),
        styles.count(queue.jobs, Tone::Plain),
        styles.count(of.running(), Tone::Plain),
        styles.count(queue.retrying, Tone::Warn),
        styles.count(queue.dead, Tone::Bad),
        styles.number(length(queue.lag), Tone::Plain),
        rate(rates.map(|(done, _)| done), Tone::Plain),
        rate(rates.map(|(_, failed)| failed), Tone::Bad),
    ]
}

fn draw_lanes(frame: &mut Frame, area: Rect, state: &State, sample: &Sample, styles: Styles) {
    let (is_wide, narrow) = (area.width >= WIDE, [0, 1, 2, 3, 6]);
    let row = |shown: &Shown| {
        let lane = &shown.one.lane;
        let tone = match shown.why {
            Why::Stuck => Tone::Bad,
            Why::Slow | Why::Failing => Tone::Warn,
            Why::Claimed => Tone::Plain,
        };
        let told = || Reported::of(lane.progress.as_deref()).line();
        let about = lane.error.as_deref().map_or_else(told, str::to_owned);
        let cells = [
            styles.cell(shown.why.as_str(), tone),
            styles.cell(&shown.one.queue, Tone::Plain),
            styles.cell(lane.key.as_deref().unwrap_or(""), Tone::Plain),
            styles.cell(lane_state(lane, sample.now).0, Tone::Plain),
            styles.number(lane.jobs.to_string(), Tone::Plain),
            styles.number(failures(lane.retry_count), Tone::Plain),
            styles.cell(&about, Tone::Plain),
        ];
        Row::new(fitting(cells, is_wide, &narrow))
    };
    let widths = [
        Constraint::Length(8),
        Constraint::Length(if is_wide { 12 } else { 10 }),
        Constraint::Fill(1),
        Constraint::Length(if is_wide { 15 } else { 12 }),
        Constraint::Length(5),
        Constraint::Length(6),
        if is_wide { Constraint::Min(15) } else { Constraint::Fill(1) },
    ];
    let about = if is_wide { "error, progress" } else { "error" };
    let head = ["", "queue", "key", "state", " jobs", "failed", about];
    let head = head.map(|name| styles.cell(name, Tone::Faint));
    let table = Table::new(state.lanes().map(row), fitting(widths, is_wide, &narrow))
        .header(Row::new(fitting(head, is_wide, &narrow)))
        .block(titled(filtered(
            "lanes: stuck, slow, retrying, running",
            state.lanes().count(),
            area,
            state,
        )))
        .row_highlight_style(chosen(state.pane == Pane::Lanes));
    let mut chosen = TableState::new().with_selected(state.lane_row());
    frame.render_stateful_widget(table, area, &mut chosen);
}

fn draw_periodic(
    frame: &mut Frame,
    area: Rect,
    programs: &[(&NodeView, &PeriodicView)],
    styles: Styles,
) {
    let (is_wide, narrow) = (area.width >= WIDE, [0, 2, 4, 5]);
    let row = |(node, program): &(&NodeView, &PeriodicView)| {
        let cells = [
            styles.cell(&program.name, Tone::Plain),
            styles.cell(&*node.info.name, Tone::Plain),
            styles.cell(periodic_state(program), Tone::Plain),
            styles.count(program.runs, Tone::Plain),
            styles.count(program.failures, Tone::Bad),
            styles.cell(program.error.as_deref().unwrap_or(""), Tone::Plain),
        ];
        Row::new(fitting(cells, is_wide, &narrow))
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(10),
        Constraint::Length(11),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Fill(2),
    ];
    let head = ["periodic", "node", "state", "  runs", "failed", "last error"];
    let head = head.map(|name| styles.cell(name, Tone::Faint));
    let table = Table::new(programs.iter().map(row), fitting(widths, is_wide, &narrow))
        .header(Row::new(fitting(head, is_wide, &narrow)))
        .block(titled(" periodic workers "));
    frame.render_widget(table, area);
}

fn draw_nodes(frame: &mut Frame, area: Rect, sample: &Sample, styles: Styles) {
    let longest = sample.nodes.iter().map(|node| columns(&node.info.id.0)).max().unwrap_or(0);
    let is_wide = area.width >= WIDE;
    let most = if is_wide { usize::from(area.width) * 2 / 5 } else { usize::from(area.width) / 4 };
    let id_columns = longest.min(most).max(NODE_COLUMNS_MIN);
    let row = |node: &NodeView| {
        let (state, tone) = node_state(node, sample.now);
        let mut troubles = troubles::of(std::slice::from_ref(node), sample.now);
        let last = match troubles.next() {
            Some((_, trouble)) => styles.cell(troubles::line(trouble, sample.now), Tone::Bad),
            None => {
                let queues = sample.queues.iter().map(|of| &of.stats);
                styles.cell(nodes::queues_of(node, queues), Tone::Plain)
            }
        };
        Row::new([
            styles.cell(cut_middle(&node.info.id.0, id_columns), Tone::Plain),
            styles.cell(state, tone),
            styles.number(busy(&node.info), Tone::Plain),
            styles.cell(relative(sample.now, node.heartbeat_at), Tone::Plain),
            last,
        ])
    };
    let widths = [
        Constraint::Length(id_columns as u16),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Fill(1),
    ];
    let last = if is_wide { "queues, or problems" } else { "queues" };
    let head = ["node", "state", "   busy", "heartbeat", last];
    let title = if sample.nodes.is_empty() { " nodes: none " } else { " nodes " };
    let table = Table::new(sample.nodes.iter().map(row), widths)
        .header(Row::new(head.map(|name| styles.cell(name, Tone::Faint))))
        .block(titled(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use seriatim::Timestamp;
    use seriatim::store::{NodeInfo, QueueStats};

    use super::*;

    fn drawn(columns: u16, state: &mut State) -> String {
        let mut screen = Terminal::new(TestBackend::new(columns, 24)).unwrap();
        screen.draw(|frame| draw(frame, state)).unwrap();
        screen.backend().to_string()
    }

    #[test]
    fn n5_periodic_workers_are_shown_with_their_failures_and_take_no_room_if_there_are_none() {
        let mut state = State::new("memory:".to_owned(), false);
        let info = NodeInfo::new("node-1".into(), std::time::Duration::from_secs(60));
        let (heartbeat_at, dead, command) = (Timestamp::default(), false, None);
        let mut node = NodeView { info, heartbeat_at, dead, command };
        let mut show = |node: NodeView| {
            let (queues, lanes) = (Vec::new(), Vec::new());
            let now = Timestamp::default();
            state.show(Sample { now, queues, lanes, nodes: vec![node] }, None);
            drawn(80, &mut state)
        };
        assert!(!show(node.clone()).contains("periodic"));
        let mut program = PeriodicView::default();
        (program.name, program.runs) = ("cleaner".to_owned(), 12);
        let mut failing = program.clone();
        (failing.name, failing.failures) = ("mailer".to_owned(), 3);
        failing.error = Some("no connection".to_owned());
        node.info.periodic = vec![program, failing];
        let shown = show(node);
        let line = |name: &str| shown.lines().position(|line| line.contains(name)).unwrap();
        assert!(line("mailer") < line("cleaner"), "{shown}");
        let mailer = shown.lines().nth(line("mailer")).unwrap();
        for part in ["pauses", "12", "3", "no connection"] {
            assert!(mailer.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_list_that_is_longer_than_the_screen_says_how_much_of_it_is_seen() {
        let queue = |i: u32| Figures {
            stats: QueueStats { queue: format!("queue-{i}").into(), ..QueueStats::default() },
            prefetched: 0,
        };
        let mut state = State::new("memory:".to_owned(), false);
        let (now, lanes, nodes) = (Timestamp::default(), Vec::new(), Vec::new());
        state.show(Sample { now, queues: (0..40).map(queue).collect(), lanes, nodes }, None);
        let shown = drawn(80, &mut state);
        let rows = shown.lines().filter(|line| line.contains("queue-")).count();
        assert!(shown.contains(&format!("queues ({rows} of 40)")), "{shown}");
    }

    #[test]
    fn a_narrow_screen_keeps_the_names() {
        let stats = QueueStats { queue: "order-changes".into(), dead: 7, ..QueueStats::default() };
        let queue = Figures { stats, prefetched: 0 };
        let mut state = State::new("memory:".to_owned(), false);
        let (lanes, nodes) = (Vec::new(), Vec::new());
        let now = Timestamp::default();
        state.show(Sample { now, queues: vec![queue], lanes, nodes }, None);
        let (narrow, wide) = (drawn(60, &mut state), drawn(80, &mut state));
        assert!(narrow.contains("order-changes") && narrow.contains("key "), "{narrow}");
        assert!(!narrow.contains("done/s") && wide.contains("done/s"), "{narrow}{wide}");
        assert!(
            narrow.contains("7 dead, 0 nodes") && wide.contains("prefetched"),
            "{narrow}{wide}"
        );
        let widest = drawn(200, &mut state);
        assert!(widest.contains("lanes: stuck, slow, retrying, running"), "{widest}");
        let queue = widest.lines().find(|line| line.contains("order-changes")).unwrap();
        assert!(
            queue.trim_matches('"').trim_end().chars().count() > 190,
            "numbers stand at the right: {queue}"
        );
        state.shows_keys = true;
        let keys = drawn(60, &mut state);
        assert!(keys.contains("requeue the dead jobs of the queue"), "{keys}");
        assert!(KEYS.lines().chain([HELP_NARROW]).all(|line| columns(line) <= 60));
    }
}
