/** `176535873226.343451`: ModSecurity 3 makes its ids of the epoch second, and a random number up to 100 behind it. */
const ENGINE_MADE = /^\d{11,13}\.\d{6}$/;

/**
 * When the request came, by its id; null when the engine did not make the id, since operators can have others made.
 * Better than the time that stands beside it, which is local and does not say where.
 */
export function timeOfId(id: string): number | null {
  return ENGINE_MADE.test(id) ? Number(id.slice(0, 10)) * 1_000 : null;
}
