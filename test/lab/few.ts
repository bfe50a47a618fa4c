/**
 * Cases of which each goes the way of another that always runs: in a long run (`make soak`) all of them, else those few. What is chosen
 * always stands for the rest: the moment in the middle of the work, a step whose undo is its own.
 */
export function few<T>(all: readonly T[], ...chosen: readonly T[]): readonly T[] {
  return process.env.VIRTKEEP_EVERY_CASE === undefined ? chosen : all;
}
