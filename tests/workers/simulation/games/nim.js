// Nim with one heap of `params.heap` and up to three taken at a time; a bridge in JavaScript.
"use strict";
const readline = require("node:readline");

const games = new Map();

function turn(game) {
  if (game.heap === 0) {
    return { state: { heap: 0, mover: game.mover }, done: true, outcome: game.mover === 0 ? "second" : "first" };
  }
  const actions = [1, 2, 3].filter((n) => n <= game.heap).map((n) => ({ id: String(n), label: `take ${n}` }));
  return { state: { heap: game.heap, mover: game.mover }, player: String(game.mover), actions, done: false };
}

function answer(method, params) {
  if (method === "initialize") return { name: "nim", version: "1", protocol: 1, sessions: 8 };
  if (method === "reset") {
    const extra = Number(BigInt(params.seed) % 3n);
    const game = { heap: ((params.params && params.params.heap) || 10) + extra, mover: 0 };
    games.set(params.session, game);
    return { ...turn(game), seed: params.seed };
  }
  if (method === "step") {
    const game = games.get(params.session);
    game.heap -= Number(params.action);
    game.mover = 1 - game.mover;
    return turn(game);
  }
  games.delete(params.session);
  return {};
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  const result = answer(message.method, message.params);
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id: message.id, result }) + "\n");
});
