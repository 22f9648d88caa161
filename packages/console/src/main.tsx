/** Entry point. */
import { render } from 'preact';
import STYLE from '../style/console.css?inline';
import { createApi } from './api.ts';
import { Root } from './root.tsx';
import { applyTheme } from './theme.ts';
import { installVisibleText } from './visible-text.ts';

// In the script, so that a page is one request less.
const sheet = new CSSStyleSheet();
sheet.replaceSync(STYLE);
document.adoptedStyleSheets = [sheet];
applyTheme();
installVisibleText();
render(<Root api={createApi(location.origin)} />, document.body);
