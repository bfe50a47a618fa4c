// A crash at any byte while a compressed archive grows is undone byte for byte, with its hash file.
import { asksOneThatCrashes } from './append-kit.ts';

asksOneThatCrashes('tar.zst', true);
