// The Lamp Below as a bridge in JavaScript: the same rules, and the same turns for the same seeds, as rules.py and
// bridge.py. Node 18 or newer, no dependencies. node bridge.js [--bugs crash,softlock,...|all] [--shift N]
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const readline = require("node:readline");
const crypto = require("node:crypto");

const WORLD = JSON.parse(fs.readFileSync(path.join(__dirname, "world.json"), "utf8"));
const BUGS = ["crash", "softlock", "unreachable_goal", "invariant", "illegal_list", "lost_progress"];
const MAX_SESSIONS = 8;
const LARGEST_SEED = (1n << 64n) - 1n;

// mulberry32 over both halves of a 64-bit seed. Seeds are BigInt: a number would lose digits past 2^53.
class Random {
  constructor(seed) {
    this.state = Number(seed & 0xffffffffn);
    this.state = (this.draw() ^ Number(seed >> 32n)) >>> 0;
  }

  draw() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  below(count) {
    return Math.floor((this.draw() * count) / 2 ** 32); // exact: the product stays under 2^53
  }

  shuffled(items) {
    const mixed = [...items];
    for (let last = mixed.length - 1; last > 0; last -= 1) {
      const other = this.below(last + 1);
      [mixed[last], mixed[other]] = [mixed[other], mixed[last]];
    }
    return mixed;
  }
}

class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

function chooseGates(shift) {
  const random = shift === 0n ? null : new Random(shift);
  const gates = {};
  for (const [bug, places] of Object.entries(WORLD.gates)) {
    const moves = random !== null && places.length > 1;
    gates[bug] = places[moves ? 1 + random.below(places.length - 1) : 0];
  }
  return gates;
}

class Game {
  constructor(seed, bugs, shift) {
    const random = new Random(seed);
    this.bugs = new Set(bugs);
    this.gates = chooseGates(shift);
    this.layout = WORLD.regions.map((region) =>
      region.spots.map((spot) => {
        const passages = spot.door ? [] : random.shuffled(region.passages.map((passage) => passage.id));
        const right = spot.door ? "open" : passages[random.below(4)];
        const names = spot.door ? ["open", "back", "search"] : passages;
        const order = random.shuffled([...names, ...spot.features.map((feature) => feature.id), "look"]);
        return { right, order, passages };
      }),
    );
    this.region = this.spot = this.best = this.turns = this.gold = 0;
    this.aside = this.stuck = this.struckDumb = false;
    this.used = this.saved = this.outcome = null;
  }

  // -- playing

  step(move) {
    if (!this.moves().some((listed) => listed.id === move)) throw new Refused(-32010, `not a move here: ${move}`);
    this.turns += 1;
    if (this.stuck || move === "look" || move === "search") return;
    if (this.region === WORLD.regions.length) this.stepAtTheEnd(move);
    else if (this.aside) this.stepAside(move);
    else if (move === "save") this.saved = { region: this.region, spot: this.spot, best: this.best };
    else if (move === "load") this.load();
    else if (this.place().features.some((feature) => feature.id === move)) this.use(move);
    else this.walk(move);
    this.best = Math.max(this.best, this.depth());
  }

  stepAtTheEnd(move) {
    const chosen = WORLD.ending.moves[this.spot].find((listed) => listed.id === move);
    if (chosen.ends !== undefined) this.outcome = chosen.ends;
    else this.spot = chosen.to;
  }

  stepAside(move) {
    if (move === "back") {
      this.aside = false;
      this.used = null;
    } else {
      this.used = this.used === move ? null : move;
    }
  }

  walk(move) {
    const here = this.layout[this.region][this.spot];
    if (move === here.right) {
      if (this.planted("unreachable_goal", move)) return;
      this.spot += 1;
      if (this.spot === WORLD.regions[this.region].spots.length) {
        this.region += 1;
        this.spot = 0;
        this.saved = null;
      }
    } else if (this.spot > 0) {
      this.spot = 0;
    } else if (move === here.passages.find((passage) => passage !== here.right)) {
      this.aside = true;
    } else {
      return;
    }
    this.used = null;
    this.gold = 0;
  }

  use(feature) {
    if (this.planted("crash", feature)) throw new Error(`the ${feature} is fastened to nothing`);
    this.used = this.used === feature ? null : feature;
    const used = this.place().features.find((listed) => listed.id === this.used);
    this.gold = used?.gold ?? 0;
    if (this.used !== null && this.planted("invariant", feature)) this.gold = -this.gold;
    this.stuck = this.planted("softlock", feature);
    this.struckDumb = this.planted("illegal_list", feature);
  }

  load() {
    const movedOn = this.region !== this.saved.region || this.spot !== this.saved.spot;
    ({ region: this.region, spot: this.spot, best: this.best } = this.saved);
    this.used = null;
    this.gold = 0;
    if (movedOn && this.bugs.has("lost_progress")) {
      this.best = -1;
      this.region = this.spot = 0;
    }
  }

  planted(bug, feature) {
    return this.bugs.has(bug) && this.gates[bug][0] === this.place().name && this.gates[bug][1] === feature;
  }

  // -- telling

  place() {
    if (this.region === WORLD.regions.length) return WORLD.ending.rooms[this.spot];
    const region = WORLD.regions[this.region];
    return this.aside ? region.side : region.spots[this.spot];
  }

  depth() {
    return this.region * 4 + this.spot;
  }

  moves() {
    if (this.outcome !== null || this.struckDumb) return [];
    if (this.region === WORLD.regions.length) {
      return WORLD.ending.moves[this.spot].map(({ id, label }) => ({ id, label }));
    }
    const region = WORLD.regions[this.region];
    const place = this.place();
    const labels = {};
    for (const passage of region.passages) labels[passage.id] = `take ${passage.label}`;
    for (const feature of place.features) labels[feature.id] = feature.label;
    Object.assign(labels, {
      look: "look around",
      open: "turn the key in the door",
      back: "go back",
      search: "search the walls",
      save: "write in the notebook (save)",
      load: "go by the notebook (load)",
    });
    let order = [place.features[0].id, "look", "back"];
    if (this.used !== null) {
      labels[this.used] = "stop that";
      order = [this.used, "look"];
    } else if (!this.aside) {
      order = [...this.layout[this.region][this.spot].order];
      if (region.camp && this.spot === 0) order.push("save");
      if (this.saved !== null) order.push("load");
    }
    return order.map((id) => ({ id, label: labels[id] }));
  }

  text() {
    if (this.outcome !== null) return WORLD.ending.texts[this.outcome];
    const place = this.place();
    const lines = [`${place.name}. ${place.text}`];
    if (this.region < WORLD.regions.length) {
      for (const feature of place.features) if (feature.id === this.used) lines.push(feature.after);
      if (!this.aside) lines.push(...this.hints());
    }
    return lines.join("\n");
  }

  hints() {
    const region = WORLD.regions[this.region];
    const here = this.layout[this.region][this.spot];
    if (here.passages.length === 0) return [];
    const names = Object.fromEntries(region.passages.map((passage) => [passage.id, passage.label]));
    const wrong = here.passages.filter((passage) => passage !== here.right).map((passage) => names[passage]);
    const hint = region.hint
      .replace("{right}", names[here.right])
      .replace("{wrong}", `${wrong[0]}, ${wrong[1]} and ${wrong[2]}`);
    return [hint, region.slip];
  }

  violations() {
    const found = [];
    if (this.gold < 0) found.push(`gold is negative: ${this.gold}`);
    if (!(this.region >= 0 && this.region <= WORLD.regions.length)) found.push(`no such region: ${this.region}`);
    return found;
  }

  turn() {
    const level = Math.min(this.region, 4) + 1;
    const items = ["matches"];
    if (this.region === 2 && this.spot < 2) items.push("iron key");
    if (this.region === 4 && this.spot > 0) items.push("lamp");
    const told = {
      state: {
        level,
        place: this.place().name,
        aside: this.aside,
        used: this.used,
        oil: 5 - level,
        gold: this.gold,
        items,
        saved: this.saved !== null,
      },
      text: this.text(),
      player: "you",
      actions: this.moves(),
      progress: Math.max(this.best, 0),
      goal: this.outcome === WORLD.goal_ending,
      violations: this.violations(),
      done: this.outcome !== null,
    };
    if (this.outcome !== null) {
      told.outcome = this.outcome;
      told.metrics = { turns: this.turns, progress: this.best };
    }
    return told;
  }
}

// -- the protocol

function readSeed(value) {
  if (value === undefined || value === null) return crypto.randomBytes(8).readBigUInt64BE();
  const digits = String(value);
  if (!/^[0-9]+$/.test(digits) || BigInt(digits) > LARGEST_SEED) {
    throw new Refused(-32012, `a seed is a whole number from 0 to 2^64-1, not ${digits.slice(0, 40)}`);
  }
  return BigInt(digits);
}

function readOptions(words) {
  const options = { bugs: [], shift: 0n };
  for (let index = 0; index < words.length; index += 2) {
    if (words[index] === "--bugs") options.bugs = words[index + 1] === "all" ? BUGS : words[index + 1].split(",");
    else if (words[index] === "--shift") options.shift = BigInt(words[index + 1]);
    else throw new Error(`unknown option ${words[index]}`);
  }
  const unknown = options.bugs.filter((bug) => bug !== "" && !BUGS.includes(bug));
  if (unknown.length > 0) throw new Error(`no such bug: ${unknown.join(", ")}; there are ${BUGS.join(", ")}`);
  return options;
}

const options = readOptions(process.argv.slice(2));
const games = new Map();

function gameOf(params) {
  const game = games.get(params.session);
  if (game === undefined) throw new Refused(-32011, `there is no session ${params.session}`);
  return game;
}

const methods = {
  initialize: () => ({ name: WORLD.title, version: WORLD.version, protocol: 1, sessions: MAX_SESSIONS }),
  reset: (params) => {
    if (!games.has(params.session) && games.size >= MAX_SESSIONS) {
      throw new Refused(-32000, `at most ${MAX_SESSIONS} sessions at once`);
    }
    const seed = readSeed(params.seed);
    const wishes = params.params ?? {};
    const game = new Game(seed, wishes.bugs ?? options.bugs, BigInt(wishes.shift ?? options.shift));
    games.set(params.session, game);
    return { ...game.turn(), seed: String(seed) };
  },
  step: (params) => {
    const game = gameOf(params);
    game.step(params.action);
    return game.turn();
  },
  close: (params) => {
    gameOf(params);
    games.delete(params.session);
    return {};
  },
};

function answer(request) {
  try {
    if (!Object.hasOwn(methods, request.method)) throw new Refused(-32601, `unknown method ${request.method}`);
    return { result: methods[request.method](request.params ?? {}) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { error: { code: error.code, message: error.message } };
  }
}

readline.createInterface({ input: process.stdin, crlfDelay: Infinity }).on("line", (line) => {
  const request = JSON.parse(line);
  process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", id: request.id ?? null, ...answer(request) })}\n`);
});
