/** Runs the programs that a test worker asks for; {@link runSmall} says why. It ends with the worker, on whose channel it hangs. */
import { runProgram } from './program.ts';
import type { Asked, Told } from './run-small.ts';

process.on('message', ({ id, program }: Asked) => {
  void runProgram(program).then(end => process.send?.({ id, end } satisfies Told));
});
