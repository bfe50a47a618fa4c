/** The language of the pages: what was chosen in this browser, else what the browser prefers. */
import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from 'react';
import { type Format, formatOf } from '../format.ts';
import { serverNow } from '../live/server-time.ts';
import { setting, storeSetting } from '../settings.ts';
import { en, type Texts } from './en.ts';
import { ru } from './ru.ts';

const LANGUAGES = { en, ru };
type Language = keyof typeof LANGUAGES;

interface Words {
  texts: Texts;
  format: Format;
  language: Language;
  choose: (language: Language) => void;
}

const WordsContext = createContext<Words | null>(null);

function preferred(): Language {
  const chosen = setting('language');
  if (chosen === 'en' || chosen === 'ru') return chosen;
  return navigator.languages.map(languageOf).find(name => name === 'en' || name === 'ru') ?? 'en';
}

const languageOf = (tag: string): string => tag.toLowerCase().split('-', 1)[0] ?? '';

/** The language with the region that the browser names: an Englishman writes days and hours as they do in England. */
function regional(language: Language): string {
  return navigator.languages.find(tag => languageOf(tag) === language) ?? language;
}

export function TextsProvider({ children }: { children: ReactNode }) {
  const [language, choose] = useState(preferred);
  useEffect(() => {
    document.documentElement.lang = language;
    storeSetting('language', language);
  }, [language]);
  const words = useMemo(() => {
    const texts = LANGUAGES[language];
    return { texts, format: formatOf(regional(language), texts.never, serverNow), language, choose };
  }, [language]);
  return <WordsContext.Provider value={words}>{children}</WordsContext.Provider>;
}

/** The texts of the language, and how it writes numbers and times. */
export function useWords(): Words {
  const words = useContext(WordsContext);
  if (words === null) throw new Error('outside of TextsProvider');
  return words;
}
