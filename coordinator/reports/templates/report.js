"use strict";
(function () {
  var PAGE = 50;
  var runs = JSON.parse(document.getElementById("run-data").textContent);
  var list = document.getElementById("run-list");
  var text = document.getElementById("run-text");
  var persona = document.getElementById("run-persona");
  var show = document.getElementById("run-show");
  var shown = [];
  var page = 0;

  // Text only ever enters the page as a text node: what a game printed can never become markup.
  function make(tag, name, content) {
    var element = document.createElement(tag);
    if (name) element.className = name;
    if (content !== undefined && content !== null) element.textContent = content;
    return element;
  }
  function words(name) { return String(name || "").replace(/_/g, " "); }
  function link(href, content) {
    var element = make("a", "", content);
    element.setAttribute("href", href);
    return element;
  }

  function matches(run, wanted) {
    if (persona.value && run.persona !== persona.value) return false;
    if (show.value === "findings" && !run.findings) return false;
    if (show.value === "unplayed" && run.played) return false;
    if (show.value === "partial" && !run.partial) return false;
    if (!wanted) return true;
    return [run.persona, run.controller, run.scenario, run.id, run.summary, run.end, run.why, run.state]
      .join(" ").toLowerCase().indexOf(wanted) >= 0;
  }

  function filter() {
    var wanted = text.value.trim().toLowerCase();
    shown = [];
    runs.forEach(function (run, position) { if (matches(run, wanted)) shown.push(position); });
    document.getElementById("run-count").textContent =
      shown.length === runs.length ? runs.length + " runs" : shown.length + " of " + runs.length + " runs";
    page = 0;
    draw();
  }

  function draw() {
    list.textContent = "";
    shown.slice(page * PAGE, (page + 1) * PAGE).forEach(function (position) { list.append(row(position)); });
    if (!shown.length) list.append(make("p", "empty", "No run is like that."));
    var pages = Math.max(1, Math.ceil(shown.length / PAGE));
    document.getElementById("run-pages").hidden = pages < 2;
    document.getElementById("run-page").textContent = "Page " + (page + 1) + " of " + pages;
    document.getElementById("run-back").disabled = page === 0;
    document.getElementById("run-on").disabled = page >= pages - 1;
  }

  function row(position) {
    var run = runs[position];
    var box = make("div", "run");
    box.id = "run-" + position;
    var details = make("details");
    var summary = make("summary");
    var who = make("span", "who", run.persona + " ");
    who.append(make("span", "", "with " + run.controller + (run.repetition > 1 ? ", " + run.repetition : "")));
    summary.append(who);
    summary.append(make("span", "end", run.played ? words(run.end) : "not played"));
    summary.append(make("span", "end num", run.actions === undefined || !run.played ? "" : run.actions + (run.actions === 1 ? " action" : " actions")));
    var marks = make("span", "marks");
    if (run.worst) marks.append(make("span", "severity " + run.worst, run.findings.length > 1 ? run.findings.length + " findings, " + run.worst : "1 " + run.worst));
    if (run.partial) marks.append(make("span", "chip warn", "partial"));
    if (!run.qualifying) marks.append(make("span", "chip warn", "other definition"));
    summary.append(marks);
    details.append(summary);
    details.addEventListener("toggle", function () {
      if (details.open && !details.dataset.drawn) { details.dataset.drawn = "yes"; details.append(body(run, position)); }
    });
    box.append(details);
    return box;
  }

  function body(run, position) {
    var box = make("div", "body");
    if (!run.played && run.why) box.append(make("p", "", "Not played: " + run.why));
    if (run.partial) box.append(make("p", "", "This run is partial: what came after its end was not seen."));
    if (run.summary) box.append(make("p", "", run.summary));
    var data = document.getElementById("timeline-" + position);
    var more = data ? JSON.parse(data.textContent) : { rows: [] };
    points(box, "What worked", more.worked);
    points(box, "What got in the way", more.inTheWay);
    if (more.keep) { box.append(make("h3", "small", "Would I keep playing")); box.append(make("p", "", more.keep)); }
    var facts = ["state " + words(run.state)];
    if (more.seed) facts.push("seed " + more.seed);
    if (more.seconds !== undefined) facts.push(more.seconds.toFixed(1) + " s");
    if (more.attempts > 1) facts.push(more.attempts + " attempts");
    if (more.recording) facts.push("video " + more.recording);
    [more.coverage, more.counts].forEach(function (group) {
      Object.keys(group || {}).forEach(function (key) { facts.push(words(key) + " " + group[key]); });
    });
    box.append(make("p", "quiet", facts.join(" · ")));
    var files = make("p", "inline");
    if (run.report) files.append(link(run.report, "Report")); else files.append(make("span", "gone", "Report missing"));
    if (run.transcript) files.append(link(run.transcript, "Transcript")); else files.append(make("span", "gone", "Transcript missing"));
    if (run.video) files.append(link(run.video, "Video"));
    if (!run.video && /^(complete|partial)/.test(more.recording || "")) files.append(make("span", "gone", "Video missing"));
    box.append(files);
    if (run.video) box.append(video(run));
    if (more.shots) film(box, run, more, position);
    if (more.rows.length) timeline(box, more.rows, position, more.secondsAt || {});
    return box;
  }

  function points(box, title, lines) {
    if (!lines || !lines.length) return;
    box.append(make("h3", "small", title));
    var items = make("ul", "fine");
    lines.forEach(function (line) { items.append(make("li", "", line)); });
    box.append(items);
  }

  function severity(number) {
    var finding = document.getElementById("finding-" + number);
    return finding ? finding.className.replace("finding ", "") : "note";
  }

  function gone(element, words) {
    element.addEventListener("error", function () { element.replaceWith(make("span", "gone", words)); });
    return element;
  }

  function video(run) {
    var screen = make("video", "screen");
    screen.controls = true;
    screen.preload = "metadata";
    screen.playsInline = true;
    screen.setAttribute("aria-label", "Video of " + run.persona + " with " + run.controller);
    screen.src = run.video;
    return gone(screen, "The video cannot be played: the file is not beside this report, or this browser lacks its codec");
  }

  // The game's screen at each step; pictures are read from disk only as they scroll into view.
  function film(box, run, more, position) {
    box.append(make("h3", "small", "Screens, " + (more.shots.length < more.shotsInAll ? more.shots.length + " of " : "") + more.shotsInAll));
    var items = make("ol", "film");
    items.tabIndex = 0;
    items.setAttribute("aria-label", "Screens of " + run.persona + " with " + run.controller);
    more.shots.forEach(function (shot) {
      var item = make("li");
      var whole = link(shot[1]);
      var picture = make("img");
      picture.loading = "lazy";
      picture.alt = "The screen at step " + shot[0];
      picture.width = 160;
      picture.height = 90;
      picture.src = shot[1];
      whole.append(gone(picture, "screenshot missing"));
      item.append(whole, link("#run-" + position + "-step-" + shot[0], "Step " + shot[0]));
      items.append(item);
    });
    box.append(items);
  }

  function clock(seconds) {
    return Math.floor(seconds / 60) + ":" + ("0" + Math.floor(seconds % 60)).slice(-2);
  }

  // A link to the second, for a new tab; a click moves the video that stands above.
  function moment(run, box, seconds) {
    var place = link(run.video + "#t=" + seconds, clock(seconds));
    place.className = "moment num";
    place.setAttribute("aria-label", "Video at " + clock(seconds));
    place.addEventListener("click", function (event) {
      var screen = box.querySelector("video");
      if (!screen || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      screen.currentTime = seconds;
      screen.scrollIntoView({ block: "center", behavior: "instant" });
      screen.focus({ preventScroll: true });
    });
    return place;
  }

  function timeline(box, rows, position, secondsAt) {
    var run = runs[position];
    box.append(make("h3", "small", "Timeline, " + rows.length + " steps"));
    box.append(strip(rows));
    var control = make("p", "inline");
    var label = make("label");
    var only = make("input");
    only.type = "checkbox";
    label.append(only, "Only steps with findings");
    if (run.findings) control.append(label);
    box.append(control);
    var items = make("ol", "timeline");
    items.tabIndex = 0;
    items.setAttribute("aria-label", "Steps of " + run.persona + " with " + run.controller);
    var all = document.createDocumentFragment();
    rows.forEach(function (cells) {
      var found = cells[3];
      var item = make("li", found.length ? "hit " + severity(found[0]) : "");
      item.id = "run-" + position + "-step-" + cells[0];
      item.append(make("span", "at", cells[0]), make("span", "did", cells[1]));
      var became = make("span", "became", cells[2] + (found.length && cells[2] ? " " : ""));
      found.forEach(function (number) { became.append(link("#finding-" + number, "Finding " + number)); });
      if (run.video && secondsAt[cells[0]] !== undefined) became.append(" ", moment(run, box, secondsAt[cells[0]]));
      item.append(became);
      all.append(item);
    });
    items.append(all);
    only.addEventListener("change", function () {
      Array.prototype.forEach.call(items.children, function (item) {
        item.hidden = only.checked && !item.classList.contains("hit");
      });
    });
    box.append(items);
  }

  // Where in the run the findings lie, at a glance.
  function strip(rows) {
    var NS = "http://www.w3.org/2000/svg";
    var svg = document.createElementNS(NS, "svg");
    var marks = rows.filter(function (cells) { return cells[3].length; });
    svg.setAttribute("class", "strip");
    svg.setAttribute("viewBox", "0 0 1000 14");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", marks.length ? "Findings at steps " + marks.map(function (cells) { return cells[0]; }).slice(0, 50).join(", ") : "No step has a finding");
    function bar(name, x, width) {
      var rect = document.createElementNS(NS, "rect");
      rect.setAttribute("class", name);
      rect.setAttribute("x", x);
      rect.setAttribute("y", name === "base" ? 4 : 0);
      rect.setAttribute("width", width);
      rect.setAttribute("height", name === "base" ? 6 : 14);
      svg.append(rect);
    }
    bar("base", 0, 1000);
    var index = new Map(rows.map(function (cells, at) { return [cells, at]; }));
    marks.forEach(function (cells) {
      bar("spot " + severity(cells[3][0]), Math.min(994, 1000 * index.get(cells) / rows.length), 6);
    });
    return svg;
  }

  function follow() {
    var place = /^#run-(\d+)(?:-step-(\d+))?$/.exec(location.hash);
    if (!place || !runs[place[1]]) return;
    var position = Number(place[1]);
    if (shown.indexOf(position) < 0) { text.value = ""; persona.value = ""; show.value = ""; filter(); }
    var wanted = Math.floor(shown.indexOf(position) / PAGE);
    if (wanted !== page || !document.getElementById("run-" + position)) { page = wanted; draw(); }
    var box = document.getElementById("run-" + position);
    var details = box.querySelector("details");
    if (!details.dataset.drawn) { details.dataset.drawn = "yes"; details.append(body(runs[position], position)); }
    details.open = true;
    var step = place[2] === undefined ? null : document.getElementById(location.hash.slice(1));
    document.querySelectorAll(".here").forEach(function (old) { old.classList.remove("here"); old.removeAttribute("aria-current"); });
    var target = step || box.querySelector("summary");
    if (step) {
      step.hidden = false;
      step.classList.add("here");
      step.setAttribute("aria-current", "step");
      step.tabIndex = -1;
    }
    target.scrollIntoView({ block: "center", behavior: "instant" });
    target.focus({ preventScroll: true });
  }

  document.getElementById("run-filter").addEventListener("submit", function (event) { event.preventDefault(); });
  text.addEventListener("input", filter);
  persona.addEventListener("change", filter);
  show.addEventListener("change", filter);
  document.getElementById("run-back").addEventListener("click", function () { page -= 1; draw(); list.querySelector("summary").focus(); });
  document.getElementById("run-on").addEventListener("click", function () { page += 1; draw(); list.querySelector("summary").focus(); });
  // A link to the place one is at already changes no hash, and yet the reader asked to be brought there.
  document.addEventListener("click", function (event) {
    var anchor = event.target.closest ? event.target.closest('a[href^="#run-"]') : null;
    if (anchor && anchor.getAttribute("href") === location.hash) { event.preventDefault(); follow(); }
  });
  window.addEventListener("hashchange", follow);
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll(".finding details").forEach(function (details) { details.open = true; });
  });
  filter();
  follow();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
