//! Parses JSON to a value within limits; an error has its place.

use super::number::{self, Literals};
use super::place::{Code, DataError, PathStep, too_deep, too_many};
use super::{too_deep_text, without_mark};
use crate::visible::is_secret_name;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

/// The limits of a text.
#[derive(Clone, Copy)]
pub(super) struct ParseLimits {
    /// Most levels of maps and lists.
    pub(super) depth: usize,
    /// Most values in the whole text.
    pub(super) parts: usize,
    /// A key may stand only once in a map.
    pub(super) unique: bool,
    /// Parts that are too deep become a text that says so; otherwise they are an error.
    pub(super) cut: bool,
}

/// Parses one value with nothing behind it, and nothing but a byte order mark before it.
pub(super) fn parse(bytes: &[u8], rules: ParseLimits) -> Result<Value, DataError> {
    let bytes = without_mark(bytes);
    let (way, numbers) = (RefCell::new(Vec::new()), NumberCursor::new(bytes));
    let mut reader = Deserializer::from_slice(bytes);
    let node = ValueSeed { way: &way, numbers: &numbers, parts: &Cell::new(0), left: rules.depth, rules };
    let read = node.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    // For a syntax error, the text of the error has line and column.
    read.map_err(|error| {
        if error.is_data() {
            DataError::from_steps(&way.borrow(), Code::Limit, error.to_string())
        } else {
            DataError::root(Code::Syntax, error.to_string())
        }
    })
}

/// The count of numbers so far, and the text in which they stand.
struct NumberCursor<'b> {
    count: Cell<usize>,
    literals: RefCell<Literals<'b>>,
}

impl<'b> NumberCursor<'b> {
    const fn new(bytes: &'b [u8]) -> Self {
        Self { count: Cell::new(0), literals: RefCell::new(Literals::new(bytes)) }
    }

    /// Counts one more number; returns its index.
    fn count_one(&self) -> usize {
        self.count.replace(self.count.get() + 1)
    }
}

/// The parser of one value. After an error `way` has the steps to it.
#[derive(Clone, Copy)]
struct ValueSeed<'w> {
    way: &'w RefCell<Vec<PathStep>>,
    numbers: &'w NumberCursor<'w>,
    /// Number of values so far.
    parts: &'w Cell<usize>,
    left: usize,
    rules: ParseLimits,
}

impl ValueSeed<'_> {
    /// Returns the parser for a member of a map or a list; `None` if the member is too deep and left out.
    fn enter<E: Error>(self) -> Result<Option<Self>, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Some(Self { left, ..self })),
            None if self.rules.cut => Ok(None),
            None => Err(E::custom(too_deep(self.rules.depth))),
        }
    }

    fn left_out_text(self) -> Value {
        too_deep_text(self.rules.depth).into()
    }

    /// Refuses a float that stands for a number beyond 64 bits. Data of this venue is read as it is, because it may be
    /// older than this rule.
    fn check_float<E: Error>(self, float: f64) -> Result<(), E> {
        let index = self.numbers.count_one();
        if self.rules.cut || !number::is_suspect(float) {
            return Ok(());
        }
        let literal = self.numbers.literals.borrow_mut().nth_literal(index).unwrap_or_default();
        let Some(reason) = number::check_literal(literal) else { return Ok(()) };
        let is_secret = self.way.borrow().iter().any(|step| matches!(step, PathStep::Key(key) if is_secret_name(key)));
        Err(E::custom(number::number_error((!is_secret).then_some(literal), reason)))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.parts.set(self.parts.get() + 1);
        if self.parts.get() > self.rules.parts {
            return Err(D::Error::custom(too_many(self.rules.parts)));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        self.numbers.count_one();
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        self.numbers.count_one();
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.check_float(value)?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Some(inside) = self.enter()? else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(self.left_out_text());
        };
        let mut list = Vec::new();
        loop {
            self.way.borrow_mut().push(PathStep::Index(list.len()));
            let item = items.next_element_seed(inside)?;
            self.way.borrow_mut().pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Some(inside) = self.enter()? else {
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(self.left_out_text());
        };
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if self.rules.unique && map.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is given twice")));
            }
            self.way.borrow_mut().push(PathStep::Key(key));
            let value = entries.next_value_seed(inside)?;
            if let Some(PathStep::Key(key)) = self.way.borrow_mut().pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}
