//! JSON text to a value, no deeper than allowed, with the place of what is wrong.

use super::not_shown;
use super::place::{Code, Step, Wrong, too_deep, too_many};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Deserializer, Map, Number, Value};
use std::cell::{Cell, RefCell};
use std::fmt;

/// What a text may be.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// Levels of maps and lists.
    pub(super) depth: usize,
    /// Values in all.
    pub(super) parts: usize,
    /// No key twice in one map.
    pub(super) unique: bool,
    /// What is deeper is left out, and a text says so; else it is an error.
    pub(super) cut: bool,
}

/// Reads one value and nothing behind it.
pub(super) fn parse(bytes: &[u8], rules: Rules) -> Result<Value, Wrong> {
    let (way, parts) = (RefCell::new(Vec::new()), Cell::new(0));
    let mut reader = Deserializer::from_slice(bytes);
    let node = Node { way: &way, parts: &parts, left: rules.depth, rules };
    let read = node.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    // Of what is no JSON the line and the column say where.
    read.map_err(|error| {
        if error.is_data() {
            Wrong::of(&way.borrow(), Code::Limit, error.to_string())
        } else {
            Wrong::root(Code::Syntax, error.to_string())
        }
    })
}

/// One value. The way to it is left behind where it fails.
#[derive(Clone, Copy)]
struct Node<'w> {
    way: &'w RefCell<Vec<Step>>,
    /// Values so far.
    parts: &'w Cell<usize>,
    left: usize,
    rules: Rules,
}

impl Node<'_> {
    /// What lies in a map or a list; `None`: it is left out.
    fn inside<E: Error>(self) -> Result<Option<Self>, E> {
        match self.left.checked_sub(1) {
            Some(left) => Ok(Some(Self { left, ..self })),
            None if self.rules.cut => Ok(None),
            None => Err(E::custom(too_deep(self.rules.depth))),
        }
    }

    fn left_out(self) -> Value {
        not_shown(self.rules.depth).into()
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.parts.set(self.parts.get() + 1);
        if self.parts.get() > self.rules.parts {
            return Err(D::Error::custom(too_many(self.rules.parts)));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
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
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let Some(inside) = self.inside()? else {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(self.left_out());
        };
        let mut list = Vec::new();
        loop {
            self.way.borrow_mut().push(Step::Index(list.len()));
            let item = items.next_element_seed(inside)?;
            self.way.borrow_mut().pop();
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let Some(inside) = self.inside()? else {
            while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(self.left_out());
        };
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if self.rules.unique && map.contains_key(&key) {
                return Err(A::Error::custom(format!("key {key:?} is given twice")));
            }
            self.way.borrow_mut().push(Step::Key(key));
            let value = entries.next_value_seed(inside)?;
            if let Some(Step::Key(key)) = self.way.borrow_mut().pop() {
                map.insert(key, value);
            }
        }
        Ok(Value::Object(map))
    }
}
