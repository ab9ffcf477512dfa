// The page of questions: each evaluates its steps in order, from what is typed.

const DATA = JSON.parse(byId("data").textContent);
const fieldId = (question, symbol) => `${question.name}-${symbol}`;
const LARGEST_INPUT = power(ratio(10n), ratio(40n));

// The number nearest to a fraction that has a whole number within 10⁻¹⁴ of it, else the next one on the safe side.
function rounded(x, whole_) {
  const near = floor(plus(x, ratio(1n, 2n)));
  const apart = plus(x, minus(near));
  const distance = { n: magnitude(apart.n), d: apart.d };
  const tolerance = least([times(ratio(1n, 10n ** 14n), x), ratio(1n, 10n ** 6n)]);
  if (near.n >= 1n && order(distance, tolerance) <= 0) return near;
  return whole_ === "up" ? ceiling(x) : floor(x);
}

// Reads one input. Throws SizeError, with its symbol, for a number that the question does not take.
function input(question, [symbol, key, unit, , , whole_]) {
  const x = typed(byId(fieldId(question, symbol)).value);
  const wrong = (words) => { throw new SizeError(symbol, `${key} ${words}`); };
  if (x === null) wrong("must be a number, such as 70e9, 0.4 or 40%");
  if (x.n <= 0n) wrong("must be more than 0");
  if (order(x, LARGEST_INPUT) > 0 || order(over(ratio(1n), x), LARGEST_INPUT) > 0) wrong("is out of range");
  if (unit === "share" && order(x, ratio(1n)) > 0) wrong("is a share above 1");
  if (whole_ && x.d !== 1n) wrong(`is no whole number of ${unit}`);
  return x;
}

// Every value of a question by its symbol, in the order of its steps; real is the answer before it is rounded.
function answerOf(question, values) {
  for (const { symbol, tree, positive } of question.steps) {
    const x = value(tree, values);
    if (positive && x.n <= 0n) refuse("the equations have no solution at these values");
    values.set(symbol, x);
  }
  const real = values.get(question.answer);
  const result = question.whole ? rounded(real, question.whole) : real;
  if (question.whole && result.n < 1n) refuse("not even one fits");
  const flags = check(question, new Map([...values, [question.answer, result]]));
  return { values, real, result, flags };
}

function check(question, values) {
  for (const { symbol, unit, meaning } of question.steps)
    if (unit === "share" && order(values.get(symbol), ratio(1n)) > 0) refuse(`${meaning} is a share above 1: no such value exists`);
  const failed = question.conditions.filter(([tree]) => !holds(tree, values));
  const said = ([, words]) => words.replace(/\{(\w+)\}/g, (_, name) => shown(values.get(name)));
  const refused = failed.find(([, , refuses]) => refuses);
  return refused ? refuse(said(refused)) : failed.map(said);
}

// A fraction: all digits of a whole number, three figures of any other.
const shown = (x) => (x.d === 1n && magnitude(x.n) < 10n ** 15n ? grouped(x.n) : `${x.d === 1n ? "" : "≈ "}${scientific(x)}`);

function scientific(x) {
  if (x.n === 0n) return "0";
  const [digits, exponent] = figures({ n: magnitude(x.n), d: x.d });
  if (exponent > -4 && exponent < 9) return significant(x);
  const [first, second, third] = digits.toString();
  return `${x.n < 0n ? "−" : ""}${first}.${second}${third} × 10${exponent < 0 ? "⁻" : ""}${raised(Math.abs(exponent))}`;
}

const withUnit = (x, unit) => `${shown(x)}${unit === "1" || unit === "share" ? "" : `${NBSP}${unit}`}`;

function showAnswer(question) {
  const place = byId(`${question.name}-answer`);
  question.inputs.forEach(([symbol]) => mark(fieldId(question, symbol), ""));
  try {
    const { values, real, result, flags } = answerOf(question, new Map(question.inputs.map((each) => [each[0], input(question, each)])));
    const last = question.steps.at(-1);
    const rows = question.steps.map(({ symbol, written: expr, unit, because }) => [symbol, withUnit(values.get(symbol), unit), `${symbol} = ${expr}`, because]);
    const words = `${last.meaning} = ${withUnit(result, last.unit)}`.replace("= ≈", "≈");
    const rest = result === real ? "" : `, rounded ${question.whole} from ${shown(real)}`;
    const exact_ = result.d === 1n && magnitude(result.n) < 10n ** 15n ? "" : ` Exactly ${read(result)}.`;
    place.replaceChildren(make("p", { class: "tally good", role: "status" }, `${words}${rest}.${exact_}`), ...flags.map((flag) => make("p", { class: "tally bad" }, flag)), table(`Steps of ${question.name}`, ["Symbol", "Value", " Expression", " Because"], rows));
  } catch (error) {
    if (error instanceof SizeError) mark(fieldId(question, error.size), error.message);
    else if (!(error instanceof Refused || error instanceof DivisionByZero)) throw error;
    place.replaceChildren(make("p", { class: "tally bad", role: "status" }, error instanceof DivisionByZero ? "These values divide by 0." : `${error.message}.`));
  }
}

function showQuestion(question, place) {
  const fields = question.inputs.map(([symbol, key, unit, meaning, text]) =>
    field(fieldId(question, symbol), [make("i", {}, symbol), ` ${meaning === key ? key : `${key}: ${meaning}`}`], unit === "share" ? "a share, or in %" : unit === "1" || unit === meaning ? "" : unit, text, ""));
  const fixed = question.fixed.length ? [make("p", { class: "note" }, `Fixed on this page: ${question.fixed.map((pair) => pair.join(" = ")).join(", ")}. The command napkin ask takes other values.`)] : [];
  const notes = [...question.notes, ...(question.source ? [question.source] : [])].map((words) => make("p", { class: "note" }, words));
  const form = make("form", { class: "fields", "aria-label": question.name }, ...fields);
  place.append(form, ...fixed, make("div", { id: `${question.name}-answer` }), ...notes);
  form.addEventListener("input", () => showAnswer(question));
  form.addEventListener("submit", (event) => event.preventDefault());
  showAnswer(question);
}

for (const question of DATA.questions) {
  const row = byId(question.name);
  const fill = () => { if (row.open && !byId(`${question.name}-answer`)) showQuestion(question, row); };
  row.addEventListener("toggle", fill);
}

function openNamed() {
  const row = byId(decodeURIComponent(location.hash.slice(1)) || "-");
  if (row?.tagName === "DETAILS") { row.open = true; row.scrollIntoView(); }
}
addEventListener("hashchange", openNamed);
openNamed();
