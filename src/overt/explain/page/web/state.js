// What the page shows: the explanations, their steps, and what is chosen.
export const explanations = JSON.parse(document.getElementById("data").textContent);
export const stages = explanations.reduce((maximum, e) => (e.stages.length > maximum.length ? e.stages : maximum), []);
export const calm = matchMedia("(prefers-reduced-motion: reduce)");
export const state = { step: stages.length - 1, timer: 0, playing: false };
export const views = [];

export const HOLD = { vectors: 3600, score: 3600, scale: 2800, normalize: 3600, weigh: 3200, sum: 4200, join: 3200 };
