//! Keys of the parts of prompts, by period.

use crate::domain::context::record::part::PartName;
use crate::domain::context::record::period::Period;

/// Prefix of parts, the oldest periods first.
pub const PARTS: &str = "p.t/";

/// Prefix of when they were looked through last, the oldest periods first.
pub const PARTS_LOOKED: &str = "p.at/";

/// Prefix of the parts of a period.
pub fn parts(period: Period) -> String {
    if period == Period::BEFORE { "p/".into() } else { format!("{PARTS}{:06}/", period.number()) }
}

/// Document of a part.
pub fn part(period: Period, name: &PartName) -> String {
    format!("{}{name}", parts(period))
}

/// The name in the key of a part of a period.
pub fn part_of(period: Period, key: &str) -> Option<PartName> {
    PartName::parse(key.strip_prefix(&parts(period))?)
}

/// The period of a part's key under [`PARTS`].
pub fn period_of_part(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PARTS)?.split_once('/')?.0)
}

/// Document of when the parts of a period were looked through last.
pub fn parts_looked(period: Period) -> String {
    format!("{PARTS_LOOKED}{:06}", period.number())
}

/// The period of such a document.
pub fn period_looked(key: &str) -> Option<Period> {
    Period::parse(key.strip_prefix(PARTS_LOOKED)?)
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
            assert_eq!(part_of(period, &part(period, &name)), Some(name.clone()));
        }
        assert_eq!(part_of(later, &part(late, &name)), None);
        assert_eq!(period_of_part(&part(late, &name)), Some(late));
        assert_eq!(period_of_part(&part(before, &name)), None);
        assert_eq!(parts_looked(late), "p.at/002943");
        assert_eq!(period_looked(&parts_looked(late)), Some(late));
    }
}
