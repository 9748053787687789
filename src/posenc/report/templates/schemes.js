"use strict";
// The position schemes of src/posenc/positions, by class, with the same hooks: `embed` changes a token's embedding at its
// position, `product` is the dot product of query and key at a distance, `bias` is added to the logit.
const SCHEMES = (() => {
  const plain = {
    embed: (tokens) => tokens,
    product: (q, k) => q.reduce((sum, value, at) => sum + value * k[at], 0),
    bias: () => 0,
  };
  const frequencies = (size, base) => Array.from({ length: size / 2 }, (_, plane) => base ** ((-2 * plane) / size));

  // (R_m q) . (R_n k) with m - n the distance: planes (i, i + d/2) are rotated, the remaining channels are not.
  function rotated(q, k, distance, theta) {
    const half = theta.length;
    let sum = plain.product(q.slice(2 * half), k.slice(2 * half));
    theta.forEach((frequency, i) => {
      const [a, b, c, d] = [q[i], q[i + half], k[i], k[i + half]];
      const angle = distance * frequency;
      sum += (a * c + b * d) * Math.cos(angle) + (a * d - b * c) * Math.sin(angle);
    });
    return sum;
  }

  // As in T5: the first half of the buckets hold one distance each, the others logarithmic ranges.
  function bucket(distance, buckets, longest) {
    const half = Math.floor(buckets / 2), rest = buckets - half;
    if (distance < half) return distance;
    let number = half;
    for (let k = 1; k < rest; k++) number += distance >= half * (longest / half) ** (k / rest) - 1e-9;
    return number;
  }

  return {
    PositionScheme: { ...plain, label: "none", formula: "q · k / √d", controls: [] },
    Sinusoidal: {
      ...plain, label: "sinusoidal", controls: ["base", "scale"],
      formula: "x + A (sin mθᵢ, cos mθᵢ), once, on the token embeddings; θᵢ = base^(−2i/D)",
      embed: (tokens, position, { base, scale }) => tokens.map((value, channel) => {
        const angle = position * base ** (-2 * Math.floor(channel / 2) / tokens.length);
        return value + scale * (channel % 2 ? Math.cos(angle) : Math.sin(angle));
      }),
    },
    Rotary: {
      ...plain, label: "rope", controls: ["base", "fraction"],
      formula: "planes of q and k are rotated by mθᵢ; θᵢ = base^(−2i/d), d the rotated channels",
      product: (q, k, distance, { base, fraction }) => rotated(q, k, distance, frequencies(Math.round(q.length * fraction), base)),
    },
    Truncated: {
      ...plain, label: "rope_truncated", controls: ["base", "kept"],
      formula: "as RoPE, but the slowest planes are not rotated",
      product: (q, k, distance, { base, kept }) =>
        rotated(q, k, distance, frequencies(q.length, base).map((theta, i, all) => (i < Math.round(kept * all.length) ? theta : 0))),
    },
    Alibi: {
      ...plain, label: "alibi", controls: ["slope"], formula: "q · k / √d − slope · distance",
      bias: (distance, { slope }) => -slope * distance,
    },
    T5: {
      ...plain, label: "t5", controls: ["buckets", "max_distance", "spread"],
      formula: "q · k / √d + √d · (a trained scalar for the distance's bucket; here random)",
      bias: (distance, { buckets, max_distance, spread }, channels, numbers) =>
        Math.sqrt(channels) * spread * numbers[bucket(distance, buckets, max_distance)],
    },
    Kerple: {
      ...plain, label: "kerple", controls: ["r1", "r2"], formula: "q · k / √d − r₁ log(1 + r₂ · distance)",
      bias: (distance, { r1, r2 }) => -r1 * Math.log1p(r2 * distance),
    },
  };
})();
