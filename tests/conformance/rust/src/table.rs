// SPDX-License-Identifier: Apache-2.0
//! The file of cases.

use std::str::FromStr;

use crate::failure::{wrong, Failure};

pub struct Case {
    pub name: String,
    ranks: Vec<i32>,
    pub plans: Vec<String>,
    transports: Vec<String>,
    /// The word of `needs` that this runner lacks.
    pub lacking: Option<String>,
    pub statements: Vec<Statement>,
}

/// The crate lends the gradients of a unit together.
const LACKS: &str = "loans";

pub struct Statement {
    pub line: usize,
    pub operation: String,
    pub object: Option<String>,
    arguments: Vec<(String, String)>,
}

impl Case {
    pub fn runs_on(&self, transport: &str, ranks: i32) -> bool {
        self.ranks.contains(&ranks) && self.transports.iter().any(|each| each == transport)
    }
}

impl Statement {
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.arguments.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Every value of an argument that may occur several times.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.arguments.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn pairs(&self) -> &[(String, String)] {
        &self.arguments
    }

    pub fn require(&self, key: &str) -> Result<&str, Failure> {
        self.get(key).ok_or_else(|| wrong(format!("{} lacks {key}=", self.operation)))
    }

    pub fn list(&self, key: &str) -> Vec<&str> {
        self.get(key).map_or(Vec::new(), |text| text.split(',').collect())
    }

    /// A number, or what it is when it is not given.
    pub fn number<T: FromStr>(&self, key: &str, otherwise: T) -> Result<T, Failure> {
        match self.get(key) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| wrong(format!("{key}={text} is no number"))),
        }
    }

    pub fn object(&self) -> Result<&str, Failure> {
        self.object.as_deref().ok_or_else(|| wrong(format!("{} names no object", self.operation)))
    }

    pub fn is_for(&self, rank: i32) -> bool {
        self.get("on").is_none() || self.list("on").contains(&rank.to_string().as_str())
    }
}

pub fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        let operation = match words.next() {
            Some(word) => word.to_string(),
            None => continue,
        };
        let rest: Vec<String> = words.map(String::from).collect();
        if operation == "case" {
            cases.push(Case {
                name: rest.first().cloned().ok_or(format!("line {line_number}: no name"))?,
                ranks: vec![1, 2, 3],
                plans: vec!["zero3".to_string()],
                transports: ["self", "local", "shm", "custom"].map(String::from).to_vec(),
                lacking: None,
                statements: Vec::new(),
            });
            continue;
        }
        let case = cases.last_mut().ok_or(format!("line {line_number}: before any case"))?;
        match operation.as_str() {
            "ranks" => {
                case.ranks = rest.iter().filter_map(|word| word.parse().ok()).collect();
            }
            "plans" => case.plans = rest,
            "transports" => case.transports = rest,
            "needs" => case.lacking = rest.into_iter().find(|word| word == LACKS),
            _ => {
                let mut object = None;
                let mut arguments = Vec::new();
                for word in rest {
                    match word.split_once('=') {
                        Some((key, value)) => arguments.push((key.to_string(), value.to_string())),
                        None => object = Some(word),
                    }
                }
                case.statements.push(Statement { line: line_number, operation, object, arguments });
            }
        }
    }
    Ok(cases)
}
