// A crash at any byte while a plain archive without hashes grows is undone byte for byte.
import { asksOneThatCrashes } from './append-kit.ts';

asksOneThatCrashes('tar', false);
