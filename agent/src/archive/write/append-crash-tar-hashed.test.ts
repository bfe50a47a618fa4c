// A crash at any byte while a plain archive with a hash file grows is undone byte for byte, with that file.
import { asksOneThatCrashes } from './append-kit.ts';

asksOneThatCrashes('tar', true);
