// A plain archive that grows holds what a fresh one would, keeps what it has, and knows each of its many states.
import { asksOneOfManyStates, asksOneThatGrows } from './append-kit.ts';

asksOneThatGrows('tar');
asksOneOfManyStates('tar');
