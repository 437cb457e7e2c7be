//! Keys of the parts of prompts, by period.

use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;

/// Prefix of parts, oldest periods first.
pub const PARTS: &str = "p.t/";

/// Prefix of the times of scans for unused parts, oldest periods first.
pub const PART_SCANS: &str = "p.at/";

/// Returns the prefix of the parts of a period.
pub fn parts(period: Period) -> String {
    if period == Period::NO_PERIOD { "p/".into() } else { format!("{PARTS}{:06}/", period.number()) }
}

/// Returns the key of a part.
pub fn part(period: Period, name: &PartName) -> String {
    format!("{}{name}", parts(period))
}

/// Returns the name in the key of a part of `period`.
pub fn part_name(period: Period, key: &str) -> Option<PartName> {
    PartName::parse(key.strip_prefix(&parts(period))?)
}

/// Returns the period in the key of a part under [`PARTS`].
pub fn period_of_part(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PARTS)?.split_once('/')?.0)
}

/// Returns the key of the time at which the last scan of a period's parts began.
pub fn part_scan(period: Period) -> String {
    format!("{PART_SCANS}{:06}", period.number())
}

/// Returns the period of a key of [`part_scan`].
pub fn period_of_scan(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PART_SCANS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_period_lie_together_and_the_oldest_come_first() {
        let name = PartName::parse("LZlWEJPXmGQDmK7nCnuWag").unwrap();
        let [before, late, later] = ["0", "2943", "12943"].map(|text| Period::parse(text).unwrap());
        assert_eq!(part(late, &name), "p.t/002943/LZlWEJPXmGQDmK7nCnuWag");
        assert!(part(late, &name) < part(later, &name));
        assert_eq!(part(before, &name), "p/LZlWEJPXmGQDmK7nCnuWag");
        for period in [before, late, later] {
            assert_eq!(part_name(period, &part(period, &name)), Some(name.clone()));
        }
        assert_eq!(part_name(later, &part(late, &name)), None);
        assert_eq!(period_of_part(&part(late, &name)), Some(late));
        assert_eq!(period_of_part(&part(before, &name)), None);
        assert_eq!(part_scan(late), "p.at/002943");
        assert_eq!(period_of_scan(&part_scan(late)), Some(late));
    }
}
