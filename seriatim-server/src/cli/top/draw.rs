//! One frame.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table, TableState, Wrap};
use seriatim::store::{NodeView, PeriodicView};

use super::columns::{Column, Text, WIDE, WIDEST, widths};
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
use crate::cli::output::Tone;
use crate::cli::tones::{lane_state, node_state};

/// Least width of the column of node ids, which takes at most two fifths of the screen, a quarter of a narrow one.
const NODE_COLUMNS_MIN: usize = 8;
/// Most rows of nodes.
const NODES_MAX: usize = 4;
/// Most rows of periodic workers; those with most failures come first.
const PERIODIC_MAX: usize = 4;
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
        room_of_queues(state, frame.area().height.saturating_sub(rows + nodes as u16 + 4)),
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
    frame.render_widget(
        Paragraph::new(last_line(state, foot.width))
            .style(Style::new().add_modifier(Modifier::BOLD)),
        foot,
    );
}

/// As many lines as there are queues: what they do not need is for lanes. Both have half if the queues need more.
fn room_of_queues(state: &State, lines: u16) -> Constraint {
    let queues = state.sample.as_ref().map_or(0, |sample| sample.queues.len()) + 2;
    match u16::try_from(queues) {
        Ok(queues) if queues < lines / 2 => Constraint::Length(queues),
        _ => Constraint::Fill(1),
    }
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

/// The cells of a row that fit.
fn fitting<T>(cells: impl IntoIterator<Item = T>, is_wide: bool, narrow: &[usize]) -> Vec<T> {
    let cells = cells.into_iter().enumerate();
    cells.filter(|(at, _)| is_wide || narrow.contains(at)).map(|(_, cell)| cell).collect()
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

const QUEUE_COLUMNS: [Column; 12] = [
    Column::long("queue"),
    Column::word("mode").from(WIDEST),
    Column::word("state"),
    Column::number("jobs"),
    Column::number("lanes").from(WIDEST),
    Column::number("running"),
    Column::number("retrying"),
    Column::number("dead"),
    Column::number("lag"),
    Column::number("done/s").from(WIDE),
    Column::number("fail/s").from(WIDE),
    Column::number("nodes").from(WIDEST),
];

fn draw_queues(frame: &mut Frame, area: Rect, state: &State, sample: &Sample, styles: Styles) {
    let rows: Vec<_> = state
        .queues()
        .map(|of| {
            let rates = state.before.as_ref().and_then(|before| sample.rates(before, &of.stats));
            queue_row(of, sample, rates)
        })
        .collect();
    let title = filtered("queues", rows.len(), area, state);
    let at = (state.queue_row(), state.pane == Pane::Queues);
    draw_table(frame, area, (&QUEUE_COLUMNS, &rows), title, at, styles);
}

fn queue_row(of: &Figures, sample: &Sample, rates: Option<(f64, f64)>) -> Vec<Text> {
    let (queue, nodes) = (&of.stats, sample.working_on(&of.stats.queue).count());
    let mut troubles = troubles::of(&sample.nodes, sample.now);
    let is_troubled = troubles.any(|(_, trouble)| trouble.queue.as_deref() == Some(&*queue.queue));
    let state = match (is_troubled, of.state(nodes)) {
        // What it is stands with its node below.
        (true, _) => ("trouble", Tone::Bad),
        (false, "open") => ("open", Tone::Plain),
        (false, state) => (state, Tone::Warn),
    };
    let rate = |rate: Option<f64>, tone| match rate {
        None => ("-".to_owned(), Tone::Faint),
        Some(rate) if rate > 0.0 => (format!("{rate:.1}"), tone),
        Some(_) => ("0".to_owned(), Tone::Faint),
    };
    let count =
        |number: u64, tone| (number.to_string(), if number == 0 { Tone::Faint } else { tone });
    let mode = queue.mode.map(|mode| mode.to_string()).unwrap_or_default();
    vec![
        (queue.queue.to_string(), Tone::Plain),
        (mode, Tone::Plain),
        (state.0.to_owned(), state.1),
        count(queue.jobs, Tone::Plain),
        count(queue.lanes, Tone::Plain),
        count(of.running(), Tone::Plain),
        count(queue.retrying, Tone::Warn),
        count(queue.dead, Tone::Bad),
        (length(queue.lag), Tone::Plain),
        rate(rates.map(|(done, _)| done), Tone::Plain),
        rate(rates.map(|(_, failed)| failed), Tone::Bad),
        count(nodes as u64, Tone::Plain),
    ]
}

const LANE_COLUMNS: [Column; 8] = [
    Column::word(""),
    Column::long("queue"),
    Column::long("key"),
    Column::word("state"),
    Column::number("jobs").from(WIDE),
    Column::number("failed").from(WIDE),
    Column::long("node").from(WIDEST),
    Column::long("error, progress"),
];

fn draw_lanes(frame: &mut Frame, area: Rect, state: &State, sample: &Sample, styles: Styles) {
    let rows: Vec<_> = state.lanes().map(|shown| lane_row(shown, sample)).collect();
    let title = filtered("lanes: stuck, slow, retrying, running", rows.len(), area, state);
    let at = (state.lane_row(), state.pane == Pane::Lanes);
    draw_table(frame, area, (&LANE_COLUMNS, &rows), title, at, styles);
}

fn lane_row(shown: &Shown, sample: &Sample) -> Vec<Text> {
    let lane = &shown.one.lane;
    let tone = match shown.why {
        Why::Stuck => Tone::Bad,
        Why::Slow | Why::Failing => Tone::Warn,
        Why::Claimed => Tone::Plain,
    };
    let told = || Reported::of(lane.progress.as_deref()).line();
    let holder = |node: &&NodeView| lane.node.as_ref() == Some(&node.info.id);
    let node = sample.nodes.iter().find(holder).map(|node| node.info.name.to_string());
    let plain = |text: String| (text, Tone::Plain);
    vec![
        (shown.why.as_str().to_owned(), tone),
        plain(shown.one.queue.to_string()),
        plain(lane.key.as_deref().unwrap_or("").to_owned()),
        plain(lane_state(lane, sample.now).text),
        plain(lane.jobs.to_string()),
        plain(failures(lane.retry_count)),
        plain(node.unwrap_or_default()),
        plain(lane.error.as_deref().map_or_else(told, str::to_owned)),
    ]
}

/// A table of these columns and rows. `at`: the chosen row, and whether keys go to this list.
fn draw_table(
    frame: &mut Frame,
    area: Rect,
    (all, rows): (&[Column], &[Vec<Text>]),
    title: String,
    (row, is_for_keys): (Option<usize>, bool),
    styles: Styles,
) {
    let widths = widths(area.width, all, rows).into_iter().map(Constraint::Length);
    let cell = |column: &Column, text: &str, tone| match column.is_number {
        true => styles.number(text, tone),
        false => styles.cell(text, tone),
    };
    let shown = || all.iter().enumerate().filter(|(_, column)| column.is_on(area.width));
    let head = shown().map(|(_, column)| cell(column, column.head, Tone::Faint));
    let of_row = |texts: &Vec<Text>| {
        let texts = shown().filter_map(|(at, column)| Some((column, texts.get(at)?)));
        Row::new(texts.map(|(column, (text, tone))| cell(column, text, *tone)).collect::<Vec<_>>())
    };
    let table = Table::new(rows.iter().map(of_row), widths)
        .header(Row::new(head.collect::<Vec<_>>()))
        .block(titled(title))
        .row_highlight_style(match is_for_keys {
            true => Style::new().add_modifier(Modifier::REVERSED),
            false => Style::new(),
        });
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(row));
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
        let state = node_state(node, sample.now);
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
            styles.cell(state.text, state.tone),
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
        assert!(widest.contains("mode") && widest.contains("lanes running"), "{widest}");
        let queue = widest.lines().find(|line| line.contains("order-changes")).unwrap();
        let end = queue.trim_matches('"').trim_end().chars().count();
        assert!(end < 110, "numbers stand near the name: {queue}");
        state.shows_keys = true;
        let keys = drawn(60, &mut state);
        assert!(keys.contains("requeue the dead jobs of the queue"), "{keys}");
        assert!(KEYS.lines().chain([HELP_NARROW]).all(|line| columns(line) <= 60));
    }
}
