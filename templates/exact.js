"use strict";
// Evaluates closed forms exactly: numerators and denominators are BigInts, and no text is run as code. The data comes from
// reports/page/what_if.py; sizes are checked as in calc/dimensions.py, guards as in calc/graph/guards.py.

// -- fractions ---------------------------------------------------------------------------------------------------------------

class Refused extends Error {}
class DivisionByZero extends Error {}
const refuse = (words) => { throw new Refused(words); };
const magnitude = (n) => (n < 0n ? -n : n);
const divisor = (a, b) => { while (b) [a, b] = [b, a % b]; return magnitude(a); };

function ratio(n, d = 1n) {
  if (d === 0n) throw new DivisionByZero();
  const common = (d < 0n ? -1n : 1n) * divisor(n, d);
  return { n: n / common, d: d / common };
}

const plus = (x, y) => ratio(x.n * y.d + y.n * x.d, x.d * y.d);
const times = (x, y) => ratio(x.n * y.n, x.d * y.d);
const over = (x, y) => ratio(x.n * y.d, x.d * y.n);
const minus = (x) => ({ n: -x.n, d: x.d });
const order = (x, y) => { const apart = x.n * y.d - y.n * x.d; return apart < 0n ? -1 : apart > 0n ? 1 : 0; };
const floor = (x) => ratio(x.n < 0n && x.n % x.d ? x.n / x.d - 1n : x.n / x.d);
const ceiling = (x) => minus(floor(minus(x)));
const remainder = (x, y) => plus(x, minus(times(y, floor(over(x, y)))));
const least = (values) => values.reduce((x, y) => (order(y, x) < 0 ? y : x));
const most = (values) => values.reduce((x, y) => (order(y, x) > 0 ? y : x));
const whole = (x, what) => (x.d === 1n ? x.n : refuse(`${what} is no whole number here: choose sizes that divide`));

function power(x, exponent) {
  const times = whole(exponent, "an exponent");
  if (magnitude(times) > 8192n) refuse("an exponent is too large");
  return times >= 0n ? ratio(x.n ** times, x.d ** times) : ratio(x.d ** -times, x.n ** -times);
}

// A whole number as the double next to it, exactly.
function double(x) {
  const near = Number(whole(x, "a double"));
  return Number.isFinite(near) ? ratio(BigInt(near)) : refuse("a double is too large");
}

// A number as it is typed: 70e9, 0.4, 40%, 1/3. Null for anything else.
function typed(text) {
  const match = /^(\d{1,60})(?:\.(\d{0,60}))?(?:e([+-]?\d{1,2}))?(%?)$/i.exec(text.trim().replace(/[,_\s]/g, ""));
  if (!match) {
    const parts = text.split("/");
    const [top, bottom] = parts.length === 2 ? parts.map(typed) : [null, null];
    return top && bottom && bottom.n ? over(top, bottom) : null;
  }
  const digits = match[2] ?? "";
  const exponent = Number(match[3] ?? 0) - digits.length - (match[4] ? 2 : 0);
  return times(ratio(BigInt(match[1] + digits)), power(ratio(10n), ratio(BigInt(exponent))));
}

// -- expressions -------------------------------------------------------------------------------------------------------------

const FUNCTIONS = {
  "+": (...all) => all.reduce(plus, ratio(0n)), "*": (...all) => all.reduce(times, ratio(1n)), "-": minus, "/": over, "**": power,
  "//": (x, y) => floor(over(x, y)), Mod: remainder, floor, ceiling, Max: (...all) => most(all), Min: (...all) => least(all), float: double,
  bits: (x) => { const n = ceiling(x).n - 1n; return ratio(n ? BigInt(magnitude(n).toString(2).length) : 0n); },
};
const RELATIONS = { "==": (s) => s === 0, "!=": (s) => s !== 0, "<": (s) => s < 0, "<=": (s) => s <= 0, ">": (s) => s > 0, ">=": (s) => s >= 0 };

// The value of a tree; names is a Map of BigInts or fractions.
function value(tree, names) {
  if (typeof tree === "number") return ratio(BigInt(tree));
  if (typeof tree === "string") {
    const known = names.get(tree);
    return known === undefined ? refuse(`${tree} has no value`) : typeof known === "bigint" ? ratio(known) : known;
  }
  const [operation, ...operands] = tree;
  if (operation === "integer") return ratio(BigInt(operands[0]));
  if (operation === "cases") {
    const first = operands.find(([, condition]) => holds(condition, names));
    return first ? value(first[0], names) : refuse("no case holds at these sizes");
  }
  return FUNCTIONS[operation](...operands.map((operand) => value(operand, names)));
}

// Whether a condition holds.
function holds(tree, names) {
  if (typeof tree === "boolean") return tree;
  const [operation, ...operands] = tree;
  if (operation === "and") return operands.every((part) => holds(part, names));
  if (operation === "or") return operands.some((part) => holds(part, names));
  if (operation === "not") return !holds(operands[0], names);
  return RELATIONS[operation](order(value(operands[0], names), value(operands[1], names)));
}

// -- closed forms ------------------------------------------------------------------------------------------------------------

const LARGEST = 2n ** 63n - 1n;

class SizeError extends Error {
  constructor(name, words) { super(words); this.size = name; }
}

// All sizes: those given, and defaults that follow. Refuses what calc/dimensions.py refuses.
function resolved(form, given) {
  const dims = new Map(form.dims.map((dim) => [dim.name, dim]));
  const sizes = new Map();
  const wrong = (name, words) => { throw new SizeError(name, words); };
  const positive = (name, size) => (size < 1n ? wrong(name, `${name} = ${size} is not positive`) : size > LARGEST ? wrong(name, `${name} is above 2⁶³ − 1`) : size);
  const get = (name) => {
    if (sizes.has(name)) return sizes.get(name);
    const dim = dims.get(name);
    let size = given.get(name);
    if (size === undefined) {
      const default_ = value(dim.default, { get });
      if (!dim.up && default_.d !== 1n) wrong(name, `${name} = ${dim.written} is no whole number: choose sizes that divide`);
      size = dim.up ? ceiling(default_).n : default_.n;
    }
    sizes.set(name, positive(name, size));
    return size;
  };
  for (const { name, multiple, plus: more = 0 } of form.dims) {
    const size = get(name);
    if (multiple === undefined) continue;
    const part = typeof multiple === "number" ? BigInt(multiple) : get(multiple);
    const fits = more ? size > BigInt(more) && (size - BigInt(more)) % part === 0n : size % part === 0n;
    const needed = more ? `${part === 1n ? "" : `a multiple of ${part} and `}more than ${more}` : `a multiple of ${multiple === String(multiple) ? `${multiple} = ` : ""}${part}`;
    if (!fits) wrong(name, `${name} = ${size} is not ${needed}`);
  }
  for (const { name, most: bound, bound: written } of form.dims) {
    const size = sizes.get(name);
    if (bound !== undefined && order(ratio(size), value(bound, sizes)) > 0)
      wrong(name, `${name} = ${size} is more than ${written} = ${read(value(bound, sizes))}`);
  }
  return sizes;
}

// Values of the symbols of the trace.
function basis(form, sizes) {
  const values = new Map(sizes);
  for (const [whole_, part, quotient, more] of form.folds)
    values.set(quotient, floor(ratio(sizes.get(whole_) - BigInt(more), typeof part === "number" ? BigInt(part) : sizes.get(part))).n);
  return new Map(form.symbols.map((name) => [name, values.get(name)]));
}

function outcomeHolds([tree, outcome], values) {
  try {
    return tree !== null && holds(tree, values) === outcome;
  } catch (error) {
    if (error instanceof DivisionByZero) return false;
    throw error;
  }
}

function side([tree], values) {
  return ["<", "<=", ">", ">="].includes(tree[0]) ? order(value(tree[1], values), value(tree[2], values)) : 0;
}

// Whether a certificate covers sizes at which a guard fails: the guard fails there too, on the same side.
function answers(guard, certified, values) {
  const [tree, , , opaque] = guard;
  if (opaque) return opaque.every((name) => certified.get(name) === values.get(name));
  if (tree === null || outcomeHolds(guard, certified)) return false;
  try {
    const here = side(guard, values);
    return here === 0 || here === side(guard, certified);
  } catch (error) {
    if (error instanceof DivisionByZero) return true;
    throw error;
  }
}

const integers = (entries) => new Map(Object.entries(entries).map(([name, size]) => [name, BigInt(size)]));
const specialCase = (form, sizes) =>
  form.cases.find(({ equal }) => Object.entries(equal).every(([name, [to]]) => order(ratio(sizes.get(name)), value(to, sizes)) === 0));

// The guards of the traced step that fail at these sizes, as text.
function failedGuards(form, sizes) {
  const special = specialCase(form, sizes);
  if (special) return failedGuards(special.form, sizes);
  const moved = Object.entries(form.specialized).filter(([name, [only]]) => sizes.get(name) !== BigInt(only));
  if (moved.length) return moved.map(([name, [only]]) => `${name} = ${only}`);
  const values = basis(form, sizes);
  const certified = form.certified.map(integers);
  const failed = form.guards.filter((guard) => !outcomeHolds(guard, values) && !certified.some((at) => answers(guard, at, values)));
  return failed.map(([, outcome, text]) => `${text} is ${outcome ? "true" : "false"}`);
}

// The polynomials of a form at sizes, each evaluated once.
class Point {
  constructor(form, sizes) {
    this.form = form;
    this.values = new Map([...basis(form, sizes), ...sizes]);
    this.leaves = form.names.map((name) => (typeof name === "string" ? this.values.get(name) : whole(value(name[1], this.values), name[0])));
    this.monomials = [];
    this.polynomials = [];
  }

  monomial(number) {
    const pairs = this.form.monomials[number];
    let product = 1n;
    for (let i = 0; i < pairs.length; i += 2) product *= this.leaves[pairs[i]] ** BigInt(pairs[i + 1]);
    return product;
  }

  polynomial(number) {
    if (this.polynomials[number] === undefined) {
      const [denominator, ...terms] = this.form.polynomials[number];
      let total = 0n;
      for (let i = 0; i < terms.length; i += 2) total += BigInt(terms[i + 1]) * (this.monomials[terms[i]] ??= this.monomial(terms[i]));
      this.polynomials[number] = ratio(total, BigInt(denominator));
    }
    return this.polynomials[number];
  }
}

// A recipe at sizes at which its step holds: every quantity, its terms, and its peak candidates.
class Evaluation {
  constructor(form, sizes) {
    this.form = form;
    this.sizes = sizes;
    this.point = new Point(form, sizes);
    const special = specialCase(form, sizes);
    this.differing = special?.differing ?? [];
    this.special = special && new Evaluation(special.form, sizes);
  }

  // The evaluation in which a quantity's closed form is the one that holds.
  of(name) { return this.differing.includes(name) ? this.special.of(name) : this; }

  count(x, name) {
    const count = whole(x, name);
    return count < 0n ? refuse(`${name} is below 0, which is an error of Napkin: please report it`) : count;
  }

  // A BigInt; null where the quantity has no closed form or the step has no such quantity.
  value(name) {
    const own = this.of(name);
    const quantity = own.form.quantities[name];
    if (!quantity || "unknown" in quantity) return null;
    return "is" in quantity ? this.count(own.point.polynomial(quantity.is), name) : own.candidates(name)[0].value;
  }

  // Peak candidates, largest first: {at, value, parts: [[role, polynomial, value]]}; at and role are indices of texts.
  candidates(name) {
    const own = this.of(name);
    const all = own.form.quantities[name].candidates.map(([at, parts]) => {
      const valued = parts.map(([role, number]) => [role, number, own.point.polynomial(number)]);
      return { at, parts: valued, value: this.count(valued.map(([, , x]) => x).reduce(plus, ratio(0n)), name) };
    });
    return all.sort((a, b) => (a.value < b.value ? 1 : a.value > b.value ? -1 : 0));
  }

  // The addends of a quantity: [path, polynomial, value, reason].
  terms(name) {
    const own = this.of(name);
    return own.form.quantities[name].terms.map(([path, number, what]) => [path, number, own.point.polynomial(number), what]);
  }
}

// {sizes, evaluation}, or {sizes, failed} where the step needs a new trace. Throws SizeError for sizes that the model cannot have.
function evaluate(form, given) {
  const sizes = resolved(form, given);
  try {
    const failed = failedGuards(form, sizes);
    return failed.length ? { sizes, failed } : { sizes, evaluation: new Evaluation(form, sizes) };
  } catch (error) {
    if (error instanceof Refused) return { sizes, failed: [error.message] };
    throw error;
  }
}

// -- text, as reports/typeset/numbers.py writes it ------------------------------------------------------------------------------

const NBSP = "\u00a0";
const grouped = (n) => magnitude(n).toString().replace(/\B(?=(\d{3})+$)/g, ",").replace(/^/, n < 0n ? "−" : "");
const read = (x) => (x.d === 1n ? grouped(x.n) : `${grouped(x.n)}/${grouped(x.d)}`);

// [three digits, exponent] of a positive fraction, rounded half to even.
function figures({ n, d }) {
  let exponent = n.toString().length - d.toString().length;
  if (order({ n, d }, power(ratio(10n), ratio(BigInt(exponent)))) < 0) exponent -= 1;
  const scaled = times({ n, d }, power(ratio(10n), ratio(BigInt(2 - exponent))));
  const below = floor(scaled);
  const side = order(plus(scaled, minus(below)), ratio(1n, 2n));
  const digits = below.n + (side > 0 || (side === 0 && below.n % 2n) ? 1n : 0n);
  return digits === 1000n ? [100n, exponent + 1] : [digits, exponent];
}

function significant(x) {
  if (x.n === 0n) return "0";
  if (x.n < 0n) return `−${significant(minus(x))}`;
  const [digits, exponent] = figures(x);
  if (exponent >= 2) return grouped(digits * 10n ** BigInt(exponent - 2));
  const places = 2 - exponent;
  const text = digits.toString().padStart(places + 1, "0");
  return `${text.slice(0, -places)}.${text.slice(-places)}`;
}

function tier(x, base, tiers) {
  let number = 0;
  const rounded = () => { const [digits, exponent] = figures(over(x, ratio(base ** BigInt(number)))); return times(ratio(digits), power(ratio(10n), ratio(BigInt(exponent - 2)))); };
  while (x.n && number + 1 < tiers && order(rounded(), ratio(base)) >= 0) number += 1;
  return number;
}

const SHORT = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
const COUNT = ["", "", "million", "billion", "trillion", "quadrillion"];
const scaled = (n, base, number, unit) => `${significant(ratio(n, base ** BigInt(number)))}${NBSP}${unit}`;

// Rounded readings of a count, largest unit first; none of a small one.
function readings(n, unit) {
  if (unit === "element") return n >= 10n ** 6n ? ((t) => [scaled(n, 1000n, t, COUNT[t])])(tier(ratio(n), 1000n, COUNT.length)) : [];
  const number = tier(ratio(n), 1000n, SHORT.length);
  if (!number) return [];
  if (unit === "FLOP") return [scaled(n, 1000n, number, `${SHORT[number]}FLOP`)];
  return [scaled(n, 1000n, number, `${SHORT[number]}B`), scaled(n, 1024n, number, `${number === 1 ? "K" : SHORT[number]}iB`)];
}

const exact = (n, unit) => `${grouped(n)}${NBSP}${unit === "FLOP" || n === 1n ? unit : `${unit}s`}`;
const headline = (n, unit) => readings(n, unit)[0] ?? exact(n, unit);

function duration(seconds) {
  const units = [["s", 1n], ["ms", 10n ** 3n], ["µs", 10n ** 6n], ["ns", 10n ** 9n]];
  const [unit, scale] = units.find(([, n]) => seconds.n && figures(times(seconds, ratio(n)))[1] >= 0) ?? units[3];
  return `${significant(times(seconds, ratio(scale)))}${NBSP}${unit}`;
}

// A part of a whole in percent, one decimal.
function share(n, of) {
  const tenths = floor(plus(ratio(1000n * n, of), ratio(1n, 2n))).n;
  return n && !tenths ? `<${NBSP}0.1${NBSP}%` : `${tenths / 10n}.${tenths % 10n}${NBSP}%`;
}

const raised = (n) => [...String(n)].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("");

// A polynomial as text: 12·L·d² + 13·L·d.
function written(form, number) {
  const [denominator, ...terms] = form.polynomials[number];
  const parts = [];
  for (let i = 0; i < terms.length; i += 2) {
    const pairs = form.monomials[terms[i]];
    const c = ratio(BigInt(terms[i + 1]), BigInt(denominator));
    const factors = [];
    for (let j = 0; j < pairs.length; j += 2) {
      const name = form.names[pairs[j]];
      factors.push((typeof name === "string" ? name : name[0]) + (pairs[j + 1] > 1 ? raised(pairs[j + 1]) : ""));
    }
    const head = magnitude(c.n) === 1n && factors.length ? [] : [grouped(magnitude(c.n))];
    const body = [...head, ...factors].join("·") + (c.d === 1n ? "" : `/${grouped(c.d)}`);
    parts.push(parts.length ? ` ${c.n < 0n ? "−" : "+"} ${body}` : `${c.n < 0n ? "−" : ""}${body}`);
  }
  return parts.join("") || "0";
}

// -- elements ----------------------------------------------------------------------------------------------------------------

const byId = (id) => document.getElementById(id);

function filled(element, attributes, children) {
  for (const [name, text] of Object.entries(attributes)) if (text !== false) element.setAttribute(name, text);
  element.append(...children);
  return element;
}

// Texts become text nodes: nothing of the data is read as markup.
const make = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// A table whose first column names the rows; the columns of names that begin with a space are words, the others numbers.
function table(caption, columns, rows) {
  const kind = (i) => (i && !columns[i].startsWith(" ") ? { class: "n" } : {});
  const cell = (text, i) => (i ? make("td", kind(i), text) : make("th", { scope: "row" }, text));
  const head = make("thead", {}, make("tr", {}, ...columns.map((name, i) => make("th", { scope: "col", ...kind(i) }, name.trim()))));
  const body = make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))));
  const made = make("table", {}, make("caption", {}, caption), head, body);
  return make("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, made);
}

// A labelled text field with a note below it.
function field(id, label, note, text, placeholder) {
  const input = make("input", { id, value: text, placeholder, inputmode: "decimal", autocomplete: "off", spellcheck: "false", "aria-describedby": `${id}-note` });
  return make("div", { class: "field" }, make("label", { for: id }, ...label), input, make("small", { id: `${id}-note`, "data-note": note }, note));
}

// Says below a field what is wrong with it; with no words, its note again.
function mark(id, words) {
  const input = byId(id);
  const note = byId(`${id}-note`);
  if (words) input.setAttribute("aria-invalid", "true");
  else input.removeAttribute("aria-invalid");
  note.textContent = words || note.dataset.note;
}
