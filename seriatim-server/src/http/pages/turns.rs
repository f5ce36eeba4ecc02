//! The links from one page of a list to the others. Places are cursors, so the address has the pages that its visitor came
//! through: the one before is the last of them.

use axum::http::Uri;

use super::link;

/// A page that the visitor came through: a point, and its place.
const TRAIL: &str = "trail";
/// Longest trail, in bytes of an address. Of a longer one, the first pages are left out.
const TRAIL_BYTES_MAX: usize = 1_000;

/// The other pages.
pub(super) struct Turns {
    /// If it is not the one before.
    pub(super) first: Option<String>,
    pub(super) before: Option<String>,
    pub(super) next: Option<String>,
}

impl Turns {
    /// Of the page at this address. `name` is the field of its place.
    pub(super) fn new(here: &str, name: &str, next: Option<&String>) -> Self {
        let (path, query) = here.split_once('?').unwrap_or((here, ""));
        let mut fields: Vec<(String, String)> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let mut trail = take(&mut fields, TRAIL);
        let place = take(&mut fields, name).pop().unwrap_or_default();
        let at = |place: &str, trail: &[String]| {
            let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let trail = trail.iter().map(|place| (TRAIL, place.as_str()));
            link::with(path, &fields.chain([(name, place)]).chain(trail).collect::<Vec<_>>())
        };
        let before = trail.split_last().map(|(last, trail)| at(&last[1..], trail));
        let first = (!place.is_empty() && trail.len() != 1).then(|| at("", &[]));
        trail.push(format!(".{place}"));
        Self { first, before, next: next.map(|next| format!("{next}{}", written(&trail))) }
    }
}

/// The last pages of a trail, as the end of an address.
fn written(trail: &[String]) -> String {
    let mut text = String::new();
    for place in trail.iter().rev() {
        let field = format!("&{TRAIL}={}", link::encoded(place));
        if text.len() + field.len() > TRAIL_BYTES_MAX {
            break;
        }
        text.insert_str(0, &field);
    }
    text
}

/// Takes the values of a field.
fn take(fields: &mut Vec<(String, String)>, name: &str) -> Vec<String> {
    let is_trail = name == TRAIL;
    let taken = fields.extract_if(.., |(field, _)| field == name).map(|(_, value)| value);
    taken.filter(|value| !is_trail || value.starts_with('.')).collect()
}

/// The address without the trail, which no page reads.
pub(in crate::http) fn without_trail(uri: &Uri) -> Option<Uri> {
    let query = uri.query().filter(|query| query.contains(TRAIL))?;
    let is_other = |field: &&str| field.split('=').next() != Some(TRAIL);
    let query: Vec<&str> = query.split('&').filter(is_other).collect();
    let path_and_query = match query.join("&") {
        none if none.is_empty() => uri.path().to_owned(),
        query => format!("{}?{query}", uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path_and_query.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of the page at this place, as its handler writes it.
    fn next(place: &str) -> String {
        link::with("/lanes", &[("prefix", "a&b ü"), ("after", place)])
    }

    #[test]
    fn who_goes_on_and_back_comes_through_the_same_pages() {
        let places = ["", "10 a&b=c", "20 .", "30"];
        let mut here = "/lanes?prefix=a%26b%20%C3%BC".to_owned();
        let mut seen = Vec::new();
        for place in &places[1..] {
            seen.push(here.clone());
            here = Turns::new(&here, "after", Some(&next(place))).next.unwrap();
            let page: Uri = here.parse().unwrap();
            assert_eq!(without_trail(&page).unwrap().to_string(), next(place));
        }
        assert_eq!(Turns::new(&here, "after", None).first.as_ref(), seen.first());
        while let Some(before) = seen.pop() {
            here = Turns::new(&here, "after", None).before.unwrap();
            assert_eq!(here, before);
        }
        let Turns { first, before, next } = Turns::new(&here, "after", None);
        assert_eq!((first, before, next), (None, None, None));
    }

    #[test]
    fn a_long_trail_leads_back_as_far_as_it_goes_and_to_the_first_page() {
        let mut here = "/lanes?prefix=a".to_owned();
        for place in 0..200 {
            here = Turns::new(&here, "after", Some(&next(&format!("{place:0>40}")))).next.unwrap();
            assert!(here.len() < TRAIL_BYTES_MAX + 100, "{}", here.len());
        }
        let mut pages = 0;
        while let Some(before) = Turns::new(&here, "after", None).before {
            (here, pages) = (before, pages + 1);
        }
        assert!(pages > 15, "{pages}");
        let first = Turns::new(&here, "after", None).first.unwrap();
        assert!(!first.contains("after"), "{first}");
    }

    #[test]
    fn an_address_written_by_hand_does_no_harm() {
        let turns = Turns::new("/lanes?trail=&trail=x&after=1&trail", "after", None);
        assert_eq!((turns.first.as_deref(), turns.before), (Some("/lanes"), None));
        let page: Uri = "/lanes?trail=x".parse().unwrap();
        assert_eq!(without_trail(&page).unwrap().to_string(), "/lanes");
        assert_eq!(without_trail(&"/lanes?a=1".parse().unwrap()), None);
    }
}
