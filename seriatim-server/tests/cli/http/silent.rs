//! A store of which no part says what is due: a claim finds it, and a listing looks for it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use seriatim::store::{Memory, QueueDue, Wrapper};
use seriatim::{Job, Queue, Result, SharedStore};

use crate::hand::Hand;

struct Silent(SharedStore);

impl Wrapper for Silent {
    fn inner(&self) -> &SharedStore {
        &self.0
    }

    async fn due(&self, queues: Vec<Arc<str>>) -> Result<Vec<QueueDue>> {
        let mut due = self.0.due(queues).await?;
        for one in &mut due {
            (one.due, one.unanswered) = (None, true);
        }
        Ok(due)
    }
}

#[tokio::test]
async fn what_no_part_of_the_store_says_is_due_is_claimed_and_listed() {
    let queues = ["mails", "orders"].map(Queue::fifo).to_vec();
    let hand = Hand::new(Arc::new(Memory::new()), queues).await;
    hand.push(Job::new("orders", &1).unwrap().key("now")).await;
    let later = Job::new("mails", &1).unwrap().key("later");
    hand.push(later.run_in(Duration::from_secs(3_600))).await;
    let silent = Arc::new(Silent(hand.store.clone()));
    let service = TowerToHyperService::new(seriatim_server::router(silent));
    let ask = async |request: Request<Body>| -> Value {
        let answer = service.call(request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    };
    let wish = json!({ "worker": "w", "queues": ["mails", "orders"] });
    let claim = Request::post("/api/v1/work/claim").header("content-type", "application/json");
    let claimed = ask(claim.body(Body::from(wish.to_string())).unwrap()).await;
    assert_eq!(claimed["lanes"][0]["key"], "now", "{claimed}");
    let listed = ask(Request::get("/api/v1/scheduled").body(Body::empty()).unwrap()).await;
    assert_eq!(listed["lanes"][0]["key"], "later", "{listed}");
}
