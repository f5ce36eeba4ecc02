//! Files of jobs under fuzz.

use std::io::Cursor;

use seriatim::Timestamp;
use seriatim_testkit::fuzz::Surface;

use super::*;
use crate::base::text::check_message;

#[test]
fn each_line_of_a_file_is_a_job_or_explained() {
    let mut jobs = 0;
    Surface::new("jobs").inputs(5_000).attack(|input| {
        let reader: Box<dyn Read + Send> = Box::new(Cursor::new(input.to_vec()));
        let reader = BufReader::new(reader);
        let mut lines = Lines { reader, number: 0, bytes: 0, bytes_total: None };
        loop {
            let chunk = lines.chunk();
            for (_, text) in chunk.lines {
                match parse(&text, |line| line.into_job("orders")) {
                    Ok(job) => {
                        jobs += 1;
                        let _ = (job.payload_digest(), job.due_at(Timestamp::MAX));
                    }
                    Err(failure) => check_message(&failure.to_string()),
                }
            }
            if let Some((_, failure)) = &chunk.wrong {
                check_message(&failure.to_string());
            }
            if chunk.is_last || chunk.wrong.is_some() {
                break;
            }
        }
    });
    assert!(jobs > 10, "{jobs}: the corpus is no longer one of jobs");
}
