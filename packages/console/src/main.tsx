/** Entry point. */
import { render } from 'preact';
import { createApi } from './api.ts';
import { Root } from './root.tsx';
import { applyTheme } from './theme.ts';
import { installVisibleText } from './visible-text.ts';

applyTheme();
installVisibleText();
render(<Root api={createApi(location.origin)} />, document.body);
